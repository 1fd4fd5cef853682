// One accepted connection: the handshake, then fragments. Each fragment is verified before the sink
// gets the fragment, and answered afterwards. Owned by the transport's thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/state/stream/transport.h"

namespace rewire::state {

struct OpenStream {
  Key key;
  std::vector<WorldMember> senders;
  FragmentSink* sink = nullptr;
};

// This member, its open streams, and the counters. Any thread may read the counters; all other
// fields are owned by the transport's thread.
struct StreamTable {
  MemberId self = 0;
  uint64_t incarnation = 0;
  std::map<std::pair<Purpose, Epoch>, OpenStream> open;
  Key names_key;
  Transport::Lookup lookup;
  Counted bytes_in{Counter::kStreamBytesIn};
  Counted bytes_out{Counter::kStreamBytesOut};
  Counted dropped_stale{Counter::kStreamRefused};
  Counted dropped_garbage{Counter::kStreamRefused};
  Counted refused{Counter::kStreamRefused};
  Counted corrupted{Counter::kStreamCorrupted};
};

class TcpInbound {
 public:
  // The progress of the connection's authentication. A refused connection is at kNothing.
  enum class Stage { kNothing, kChallenged, kMember };

  // source: identifies the host. stall: limit without progress on a fragment, a name or an answer
  // after the handshake. `streams` must outlive this object.
  TcpInbound(UniqueFd fd, uint64_t source, StreamTable* streams, Duration stall, Time now);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool closed() const { return !fd_.valid(); }
  [[nodiscard]] bool WantsWrite() const { return !out_.empty(); }
  [[nodiscard]] Stage stage() const;
  // Valid at the stages kChallenged and kMember.
  [[nodiscard]] const StreamHello& hello() const { return hello_; }
  // The connection's time and source: the host, or the member that a challenged connection claims.
  [[nodiscard]] PendingConnection pending() const;
  void OnReadable(Time now);
  void OnWritable();
  // Closes the connection when the handshake or a fragment has passed its deadline.
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
  // Counts malformed bytes, logs the reason at the level debug, and closes the connection.
  void Garbage(std::string_view why);

  UniqueFd fd_;
  const uint64_t source_;
  StreamTable* const streams_;
  const Duration stall_;
  const Time since_;
  Time deadline_;  // applies while a handshake, a fragment or an answer is unfinished
  State state_ = State::kHello;
  bool proved_ = false;
  // The buffer grows to the largest fragment and never shrinks: clearing a megabyte for each
  // fragment costs as much as a copy. The buffer is small until the sender is authenticated.
  std::vector<char> in_ = std::vector<char>(kStreamHelloSize);
  size_t want_ = kStreamHelloSize;
  size_t have_ = 0;
  StreamHello hello_;
  Code expected_{};  // the correct proof
  FragmentHeader header_;
  std::string out_;
};

}  // namespace rewire::state
