// The three objects that NCCL holds for a connection (sender, receiver, listener), implemented once
// per transport (net_plugin/socket, net_plugin/verbs). NCCL's service thread creates and closes the
// objects; its progress thread makes all other calls. The two threads never call at the same time,
// except that Register and Deregister may run concurrently. No call blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/abi/net_core.h"

namespace rewire::net {

class Comm;

// The object behind NCCL's void* request; owned by its comm.
struct Request {
  Comm* comm = nullptr;
  bool flush = false;  // created by Iflush
};

class Comm {
 public:
  virtual ~Comm() = default;
  // Registers memory for later Isend or Irecv calls; returns an error for an unsupported kind.
  virtual absl::StatusOr<void*> Register(void* data, size_t bytes, int type) = 0;
  // Registers the same memory, given as `offset` in a dmabuf descriptor.
  virtual absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                               int fd) = 0;
  virtual absl::Status Deregister(void* mr) = 0;
  // Moves bytes. Returns true when the request is complete; the request is then free for reuse.
  // `sizes` may be null and gets the bytes of the send or of each sub-receive.
  virtual absl::StatusOr<bool> Test(Request* request, int* sizes) = 0;
};

class Sender : public Comm {
 public:
  // Returns null if no request is free or possible now; the caller retries.
  virtual absl::StatusOr<Request*> Isend(const void* data, size_t bytes, int tag, void* mr) = 0;
};

class Receiver : public Comm {
 public:
  virtual absl::StatusOr<Request*> Irecv(int count, void* const* data, const size_t* bytes,
                                         const int* tags, void* const* mrs) = 0;
  // When the request completes, the device that owns the memory sees all data received there. Null
  // means that the data is already visible.
  virtual absl::StatusOr<Request*> Iflush(int count, void* const* data, void* const* mrs) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Returns null if no peer has connected yet.
  virtual absl::StatusOr<std::unique_ptr<Receiver>> Accept() = 0;
};

}  // namespace rewire::net
