// NCCL's receiving end over the streams of a link: each payload is received directly into its
// buffer. A stream whose next message has no buffer yet is not read, so TCP's flow control stops
// its sender. SocketListener, NCCL's listening end, makes a receiver of each link that arrives.
// Threads: see net_plugin/transport/comm.h.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/socket/workers.h"
#include "net_plugin/transport/comm.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Links;

class SocketReceiver final : public Receiver, private Workers::Work {
 public:
  // The destructor returns the link to `links`, unless unread data remain in the link.
  SocketReceiver(std::unique_ptr<Link> link, Links* links);
  ~SocketReceiver() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                       int fd) override;
  absl::Status Deregister(void* mr) override;
  // Accepts one buffer per receive.
  absl::StatusOr<Request*> Irecv(int count, void* const* data, const size_t* bytes, const int* tags,
                                 void* const* mrs) override;
  // Host memory needs no flush: received data are visible at once.
  absl::StatusOr<Request*> Iflush(int, void* const*, void* const*) override { return nullptr; }
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  struct Message : Request {
    bool busy = false;
    std::atomic<bool> done{false};
    char* data = nullptr;
    size_t room = 0;
    uint64_t sequence = 0;
    bool known = false;  // its first chunk has arrived
    size_t bytes = 0;
    size_t claimed = 0;  // bytes of the chunks that have begun to arrive
    size_t received = 0;
  };
  struct Reading {
    bool headed = false;
    FrameHeader header;
    Message* message = nullptr;  // null: the message has no buffer yet
    size_t payload = 0;          // payload bytes received
  };

  enum class After {
    kIdle,     // nothing is expected now; a later call arms the stream
    kBlocked,  // wait until more data arrive
    kMore,     // more data are available
  };
  // Reads the available data, up to about `most` bytes. NCCL's thread moves stream 0; a worker
  // moves each other stream.
  After MoveStream(size_t stream, size_t most = SIZE_MAX);
  void Drive(size_t stream) override;
  // False: the header that was read has no buffer yet, or never will.
  bool FindPlace(size_t stream);
  // Counts `bytes` received bytes of payload. False: nothing more is expected now.
  bool Count(size_t stream, size_t bytes);
  // The stream is not read until a later call arms it.
  void Disarm(size_t stream) REWIRE_REQUIRES(mutex_);
  // The peer has closed this stream: after its last frame, or in the middle of a frame.
  void End(size_t stream, bool in_frame, const absl::Status& why);
  // Returns the message of this header's payload, or null if the message has no buffer yet.
  absl::StatusOr<Message*> PlaceOf(const FrameHeader& header) REWIRE_REQUIRES(mutex_);
  void Fail(const absl::Status& status) REWIRE_REQUIRES(mutex_);
  // Returns a new status: copies share a reference count, and the result goes to another thread.
  [[nodiscard]] absl::Status Failure() const REWIRE_REQUIRES(mutex_) {
    return {failure_.code(), failure_.message()};
  }

  std::unique_ptr<Link> link_;
  Links* const links_;
  std::vector<Reading> reading_;   // each entry is owned by the thread that moves its stream
  std::vector<uint64_t> workers_;  // by stream; stream 0 has none
  Mutex mutex_;
  std::array<Message, kMaxRequests> messages_ REWIRE_GUARDED_BY(mutex_);  // by sequence
  uint64_t next_ REWIRE_GUARDED_BY(mutex_) = 0;  // sequence of the next message to get a buffer
  uint64_t unfinished_ REWIRE_GUARDED_BY(mutex_) = 0;    // have a buffer but are incomplete
  uint64_t end_ REWIRE_GUARDED_BY(mutex_) = UINT64_MAX;  // messages of this use, after its close
  std::vector<bool> armed_ REWIRE_GUARDED_BY(mutex_);
  std::vector<bool> kept_ REWIRE_GUARDED_BY(mutex_);  // not armed, partly read
  std::vector<bool> ended_ REWIRE_GUARDED_BY(mutex_);
  absl::Status failure_ REWIRE_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

class SocketListener final : public Listener {
 public:
  SocketListener(uint64_t id, Links* links) : id_(id), links_(links) {}
  ~SocketListener() override;
  absl::StatusOr<std::unique_ptr<Receiver>> Accept() override;

 private:
  const uint64_t id_;
  Links* const links_;
};

}  // namespace rewire::net
