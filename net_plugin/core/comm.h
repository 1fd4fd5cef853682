// The three objects that NCCL holds of a connection, and what it asks them. One implementation per
// transport (net_plugin/socket, net_plugin/verbs). NCCL's service thread makes and closes them, its
// progress thread does the rest, never both at once; only registering goes on beside it. Nothing
// blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/core_abi.h"

namespace rewire::net {

class Comm;

// What stands behind NCCL's void* request. Owned by its comm.
struct Request {
  Comm* comm = nullptr;
  bool flush = false;  // asked for by Iflush
};

class Comm {
 public:
  virtual ~Comm() = default;
  // Memory that Isend or Irecv will be given; unsupported kinds are refused.
  virtual absl::StatusOr<void*> Register(void* data, size_t bytes, int type) = 0;
  // The same memory behind a dmabuf descriptor, at `offset` of it.
  virtual absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                               int fd) = 0;
  virtual absl::Status Deregister(void* mr) = 0;
  // Moves bytes. True when the request is done: it is free again then. sizes: may be null; of the
  // sub-receives, or of the send.
  virtual absl::StatusOr<bool> Test(Request* request, int* sizes) = 0;
};

class Sender : public Comm {
 public:
  // Null: cannot now, ask again.
  virtual absl::StatusOr<Request*> Isend(const void* data, size_t bytes, int tag, void* mr) = 0;
};

class Receiver : public Comm {
 public:
  virtual absl::StatusOr<Request*> Irecv(int count, void* const* data, const size_t* bytes,
                                         const int* tags, void* const* mrs) = 0;
  // What has been received there is seen by the device whose memory it is, when the request is
  // done. Null: it is already.
  virtual absl::StatusOr<Request*> Iflush(int count, void* const* data, void* const* mrs) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Null: nobody has come yet.
  virtual absl::StatusOr<std::unique_ptr<Receiver>> Accept() = 0;
};

}  // namespace rewire::net
