// NCCL's sending end over the streams of a link. The first chunk of a message goes on stream 0, the
// others on whichever stream has room. A message of which nothing is gained by that goes on stream
// 0 as one chunk (split_choice.h). Large chunks are lent to the kernel where it does not copy them:
// their message is done when it has let go of them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/socket/split_choice.h"
#include "net_plugin/socket/workers.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Links;

// Which messages go over several streams.
enum class Splitting {
  kAll,       // that are large enough
  kMeasured,  // of these, where that is faster
};

class SocketSender final : public Sender, private Workers::Work {
 public:
  // The link goes back to `links` at the end, unless something was left in it.
  SocketSender(std::unique_ptr<Link> link, Links* links, Splitting splitting = Splitting::kAll);
  ~SocketSender() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                       int fd) override;
  absl::Status Deregister(void* mr) override;
  absl::StatusOr<Request*> Isend(const void* data, size_t bytes, int tag, void* mr) override;
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  struct Message : Request {
    bool busy = false;  // of NCCL's thread
    std::atomic<bool> done{false};
    const char* data = nullptr;
    size_t bytes = 0;
    size_t taken = 0;  // by streams
    size_t sent = 0;
    size_t lent = 0;      // pieces that the kernel still reads
    bool headed = false;  // its first chunk was taken
    bool split = false;   // over the streams
    uint64_t sequence = 0;
    int tag = 0;
    Time begun;  // where splitting is measured and possible
  };
  // What a stream is about to write.
  struct Writing {
    Message* message = nullptr;  // none: free
    FrameHeader header;
    size_t header_sent = 0;
    size_t payload_sent = 0;
  };

  // Writes what the kernel takes now, up to about `most` bytes; false: nothing is left to write.
  // NCCL's thread for stream 0, a worker for any other.
  bool MoveStream(size_t stream, size_t most = SIZE_MAX);
  void Drive(size_t stream) override;
  // The next chunk that this stream may write; false: none.
  bool Take(size_t stream) REWIRE_REQUIRES(mutex_);
  void TakeBack() REWIRE_REQUIRES(mutex_);
  void FinishIfThrough(Message* message) REWIRE_REQUIRES(mutex_);
  void Fail(const absl::Status& status) REWIRE_REQUIRES(mutex_);
  // Afresh: copies of a status share a count, and this one goes to another thread.
  [[nodiscard]] absl::Status Failure() const REWIRE_REQUIRES(mutex_) {
    return {failure_.code(), failure_.message()};
  }

  // Whether its time says something of splitting.
  [[nodiscard]] bool Measured(const Message& message) const;

  std::unique_ptr<Link> link_;
  Links* const links_;
  const Splitting splitting_;
  std::vector<Writing> writing_;   // each of the thread that moves its stream
  std::vector<uint64_t> workers_;  // by stream; stream 0 has none
  Mutex mutex_;
  std::array<Message, kMaxRequests> messages_ REWIRE_GUARDED_BY(mutex_);  // by sequence
  uint64_t next_ REWIRE_GUARDED_BY(mutex_) = 0;    // sequence of the next message
  uint64_t oldest_ REWIRE_GUARDED_BY(mutex_) = 0;  // of the oldest that is not taken whole
  std::vector<bool> armed_ REWIRE_GUARDED_BY(mutex_);
  SplitChoice choice_ REWIRE_GUARDED_BY(mutex_);
  Time last_done_ REWIRE_GUARDED_BY(mutex_);  // of the messages that are measured
  absl::Status failure_ REWIRE_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

}  // namespace rewire::net
