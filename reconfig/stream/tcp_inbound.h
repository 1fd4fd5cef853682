// One connection that was made to us: the handshake, then fragments, each verified before the sink
// sees it and answered after. Owned by the transport's thread.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/newcomers.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/stream/transport.h"

namespace rewire {

struct OpenStream {
  Key key;
  std::vector<WorldMember> senders;
  FragmentSink* sink = nullptr;
};

// This member, the streams that are open here, and what was counted.
struct StreamTable {
  MemberId self = 0;
  uint64_t incarnation = 0;
  std::map<std::pair<Purpose, Epoch>, OpenStream> open;
  Key names_key;
  Transport::Lookup lookup;
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> dropped_stale{0};
  std::atomic<uint64_t> dropped_garbage{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> corrupted{0};
};

class TcpInbound {
 public:
  // What it has proved so far. A refused connection has proved nothing.
  enum class Stage { kNothing, kChallenged, kMember };

  // source: tells hosts apart. stall: for what is under way after the handshake.
  TcpInbound(UniqueFd fd, uint64_t source, StreamTable* streams, Duration stall, Time now);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool closed() const { return !fd_.valid(); }
  [[nodiscard]] bool WantsWrite() const { return !out_.empty(); }
  [[nodiscard]] Stage stage() const;
  // Of a connection that is challenged or a member's.
  [[nodiscard]] const StreamHello& hello() const { return hello_; }
  // The host, or the member that a challenged connection claims to be; and since when.
  [[nodiscard]] Newcomer newcomer() const;
  void OnReadable(Time now);
  void OnWritable();
  // Closes when the handshake or a fragment has been under way for too long.
  void OnTick(Time now);
  void Close() { fd_.reset(); }

 private:
  enum class State { kHello, kProof, kHeader, kBody, kNameLength, kName, kEnd };
  void Expect(State state, size_t bytes);
  void Filled(Time now);
  void OnHello();
  void OnProof();
  void OnHeader();
  void OnBody();
  void OnName();
  void Answer(std::string_view bytes);
  void Garbage();

  UniqueFd fd_;
  const uint64_t source_;
  StreamTable* const streams_;
  const Duration stall_;
  const Time since_;
  Time deadline_;  // while something is under way
  State state_ = State::kHello;
  bool proved_ = false;
  // Grows to the largest thing that came and stays so: clearing a megabyte per fragment is a copy
  // more. Small until the sender has proved itself.
  std::vector<char> in_ = std::vector<char>(kStreamHelloSize);
  size_t want_ = kStreamHelloSize;
  size_t have_ = 0;
  StreamHello hello_;
  Code expected_{};  // the proof
  FragmentHeader header_;
  std::string out_;
};

}  // namespace rewire
