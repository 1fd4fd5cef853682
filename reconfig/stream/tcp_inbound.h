// One connection that somebody made to us: greeting, then fragments, each verified before the sink
// sees it and answered after. Of the transport's thread alone.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/stream/transport.h"

namespace rewire {

// The streams that are open here, and what was counted.
struct StreamTable {
  std::map<StreamKey, FragmentSink*> sinks;
  uint64_t names_secret = 0;
  Transport::Lookup lookup;
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> dropped_stale{0};
  std::atomic<uint64_t> dropped_garbage{0};
  std::atomic<uint64_t> corrupted{0};
};

class TcpInbound {
 public:
  TcpInbound(UniqueFd fd, StreamTable* streams, Duration stall, Time now)
      : fd_(std::move(fd)), streams_(streams), stall_(stall), deadline_(now + stall) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool closed() const { return !fd_.valid(); }
  [[nodiscard]] bool WantsWrite() const { return !out_.empty(); }
  [[nodiscard]] const StreamKey& key() const { return greeting_.key; }
  [[nodiscard]] bool accepted() const { return state_ == State::kHeader || state_ == State::kBody; }
  void OnReadable(Time now);
  void OnWritable();
  // Closes when a greeting or a fragment has been under way for too long.
  void OnTick(Time now);
  void Close() { fd_.reset(); }

 private:
  enum class State { kGreeting, kHeader, kBody, kNameLength, kName, kEnd };
  void Expect(State state, size_t bytes);
  void Filled(Time now);
  void OnGreeting();
  void OnHeader();
  void OnBody();
  void OnName();
  void Answer(std::string_view bytes);
  void Garbage();

  UniqueFd fd_;
  StreamTable* const streams_;
  const Duration stall_;
  Time deadline_;  // while something is under way
  State state_ = State::kGreeting;
  // Grows to the largest thing that came and stays so: clearing a megabyte per fragment is a copy
  // more.
  std::vector<char> in_ = std::vector<char>(kGreetingSize);
  size_t want_ = kGreetingSize;
  size_t have_ = 0;
  Greeting greeting_;
  FragmentHeader header_;
  std::string out_;
};

}  // namespace rewire
