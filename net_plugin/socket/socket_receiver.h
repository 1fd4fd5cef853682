// NCCL's receiving end over the streams of a link: every payload goes straight to where it belongs.
// A stream whose next message has no place yet is not read: the kernel holds its sender back.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/socket/workers.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Links;

class SocketReceiver final : public Receiver, private Workers::Work {
 public:
  // The link goes back to `links` at the end, unless something is left in it.
  SocketReceiver(std::unique_ptr<Link> link, Links* links);
  ~SocketReceiver() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                       int fd) override;
  absl::Status Deregister(void* mr) override;
  // One buffer at a time.
  absl::StatusOr<Request*> Irecv(int count, void* const* data, const size_t* bytes, const int* tags,
                                 void* const* mrs) override;
  // Host memory is there when it has come.
  absl::StatusOr<Request*> Iflush(int, void* const*, void* const*) override { return nullptr; }
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  struct Message : Request {
    bool busy = false;
    std::atomic<bool> done{false};
    char* data = nullptr;
    size_t room = 0;
    uint64_t sequence = 0;
    bool known = false;  // its first chunk has come
    size_t bytes = 0;
    size_t claimed = 0;  // of it, by the chunks that have begun to come
    size_t received = 0;
  };
  struct Reading {
    bool headed = false;
    FrameHeader header;
    Message* message = nullptr;  // none: it has no place yet
    size_t payload = 0;          // received of it
  };

  enum class After {
    kIdle,     // nothing more is expected now: somebody will arm the stream
    kBlocked,  // until more comes
    kMore,     // there is more
  };
  // Reads what is there, up to about `most` bytes. NCCL's thread for stream 0, a worker for any
  // other.
  After MoveStream(size_t stream, size_t most = SIZE_MAX);
  void Drive(size_t stream) override;
  // False: the header that was read has no place yet, or never will.
  bool FindPlace(size_t stream);
  // So many bytes of payload have come. False: nothing more is expected now.
  bool Count(size_t stream, size_t bytes);
  // The stream will not be read until somebody arms it.
  void Disarm(size_t stream) REWIRE_REQUIRES(mutex_);
  // Nothing more comes on this stream; after its last frame, or in the middle of one.
  void End(size_t stream, bool in_frame, const absl::Status& why);
  // The message that this header's payload belongs to, or null when it has no place yet.
  absl::StatusOr<Message*> PlaceOf(const FrameHeader& header) REWIRE_REQUIRES(mutex_);
  void Fail(const absl::Status& status) REWIRE_REQUIRES(mutex_);
  // Afresh: copies of a status share a count, and this one goes to another thread.
  [[nodiscard]] absl::Status Failure() const REWIRE_REQUIRES(mutex_) {
    return {failure_.code(), failure_.message()};
  }

  std::unique_ptr<Link> link_;
  Links* const links_;
  std::vector<Reading> reading_;   // each of the thread that moves its stream
  std::vector<uint64_t> workers_;  // by stream; stream 0 has none
  Mutex mutex_;
  std::array<Message, kMaxRequests> messages_ REWIRE_GUARDED_BY(mutex_);  // by sequence
  uint64_t next_ REWIRE_GUARDED_BY(mutex_) = 0;  // sequence of the next message to get a place
  uint64_t unfinished_ REWIRE_GUARDED_BY(mutex_) = 0;    // with a place, not come whole
  uint64_t end_ REWIRE_GUARDED_BY(mutex_) = UINT64_MAX;  // messages of this use, once it is closed
  std::vector<bool> armed_ REWIRE_GUARDED_BY(mutex_);
  std::vector<bool> kept_ REWIRE_GUARDED_BY(mutex_);  // not armed, and bytes of it are here already
  std::vector<bool> ended_ REWIRE_GUARDED_BY(mutex_);
  absl::Status failure_ REWIRE_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

}  // namespace rewire::net
