// NCCL's sending end over the streams of a link. The first chunk of a message goes on stream 0, the
// others on any stream with room. A message that gains nothing from several streams goes on stream
// 0 as one chunk (split_choice.h). Large chunks are lent to the kernel if it does not copy them;
// their message is complete when the kernel has released the memory. Threads: see
// net_plugin/transport/comm.h.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/socket/split_choice.h"
#include "net_plugin/socket/workers.h"
#include "net_plugin/transport/comm.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Links;

// Selects which messages go over several streams.
enum class Splitting {
  kAll,       // all messages that are large enough
  kMeasured,  // large enough messages, if measurements show that splitting is faster
};

class SocketSender final : public Sender, private Workers::Work {
 public:
  // The destructor returns the link to `links`, unless unsent data remain in the link.
  SocketSender(std::unique_ptr<Link> link, Links* links, Splitting splitting = Splitting::kAll);
  ~SocketSender() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                       int fd) override;
  absl::Status Deregister(void* mr) override;
  absl::StatusOr<Request*> Isend(const void* data, size_t bytes, int tag, void* mr) override;
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;
  [[nodiscard]] Splitting splitting() const { return splitting_; }

 private:
  struct Message : Request {
    bool busy = false;  // owned by NCCL's thread
    std::atomic<bool> done{false};
    const char* data = nullptr;
    size_t bytes = 0;
    size_t taken = 0;  // bytes that streams have taken
    size_t sent = 0;
    size_t lent = 0;      // loans that the kernel still reads
    bool headed = false;  // its first chunk was taken
    bool split = false;   // over several streams
    uint64_t sequence = 0;
    int tag = 0;
    Time begun;  // set if splitting is possible and measured
  };
  // The chunk that a stream is about to write.
  struct Writing {
    Message* message = nullptr;  // null: the stream is free
    FrameHeader header;
    size_t header_sent = 0;
    size_t payload_sent = 0;
  };

  // Writes what the kernel accepts now, up to about `most` bytes; false: nothing is left to write.
  // NCCL's thread moves stream 0; a worker moves each other stream.
  bool MoveStream(size_t stream, size_t most = SIZE_MAX);
  void Drive(size_t stream) override;
  // Takes the next chunk that this stream may write; false if there is none.
  bool Take(size_t stream) REWIRE_REQUIRES(mutex_);
  void TakeBack() REWIRE_REQUIRES(mutex_);
  void FinishIfThrough(Message* message) REWIRE_REQUIRES(mutex_);
  void Fail(const absl::Status& status) REWIRE_REQUIRES(mutex_);
  // Returns a new status: copies share a reference count, and the result goes to another thread.
  [[nodiscard]] absl::Status Failure() const REWIRE_REQUIRES(mutex_) {
    return {failure_.code(), failure_.message()};
  }

  // Tells whether the message's time is a valid sample for `choice_`.
  [[nodiscard]] bool Measured(const Message& message) const;

  std::unique_ptr<Link> link_;
  Links* const links_;
  const Splitting splitting_;
  std::vector<Writing> writing_;   // each entry is owned by the thread that moves its stream
  std::vector<uint64_t> workers_;  // by stream; stream 0 has none
  Mutex mutex_;
  std::array<Message, kMaxRequests> messages_ REWIRE_GUARDED_BY(mutex_);  // by sequence
  uint64_t next_ REWIRE_GUARDED_BY(mutex_) = 0;    // sequence of the next message
  uint64_t oldest_ REWIRE_GUARDED_BY(mutex_) = 0;  // of the oldest message not yet taken
  std::vector<bool> armed_ REWIRE_GUARDED_BY(mutex_);
  SplitChoice choice_ REWIRE_GUARDED_BY(mutex_);
  Time last_done_ REWIRE_GUARDED_BY(mutex_);  // end of the last measured message
  absl::Status failure_ REWIRE_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

}  // namespace rewire::net
