// NCCL's receiving end over RDMA: takes NCCL's buffers into its table of receives, tells the sender
// about them (ClearSender), and stores the pieces that arrive over the control connection. A worker
// moves the connection while no request is outstanding (Watch). Threads: see
// net_plugin/transport/comm.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/background.h"
#include "net_plugin/verbs/clear_sender.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/flush.h"
#include "net_plugin/verbs/receive_table.h"
#include "net_plugin/verbs/staging.h"

namespace rewire::net {

class Links;

class VerbsReceiver final : public Receiver, private Connection::End {
 public:
  // The link's attachment must be a Connection. The destructor returns the link to `links`, unless
  // unfinished work remains in the link.
  VerbsReceiver(std::unique_ptr<Link> link, Links* links);
  ~VerbsReceiver() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                       int fd) override;
  absl::Status Deregister(void* mr) override;
  absl::StatusOr<Request*> Irecv(int count, void* const* data, const size_t* bytes, const int* tags,
                                 void* const* mrs) override;
  absl::StatusOr<Request*> Iflush(int count, void* const* data, void* const* mrs) override;
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  void Written(uint32_t) override {}
  absl::Status Arrived(uint32_t immediate, uint32_t bytes) override;
  std::string Report() override;
  absl::Status Settle(size_t rail, std::string_view report) override;
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override;
  absl::StatusOr<bool> TakeFrame(const FrameHeader& header, std::string_view payload) override;
  void FrameSent(const FrameHeader&) override {}

  // Polls the connection while no request is outstanding.
  Watch::Next Attend();
  absl::StatusOr<Receive*> Begin(int count, void* const* data, const size_t* bytes, const int* tags,
                                 void* const* mrs);
  // Starts the copy of a piece from the control connection to the device; false if none is needed.
  bool BeginStore(const FrameHeader& piece);
  void EndStore();

  std::unique_ptr<Link> link_;
  Links* const links_;
  Connection& connection_;
  ReceiveTable receives_;
  ClearSender clear_;
  Flush flush_;
  Staging staging_;
  std::optional<FrameHeader> storing_;  // the piece that is being copied
  Time stored_{};                       // start of that copy
  uint32_t requests_ = 0;               // outstanding requests, without flushes, which move nothing
  std::unique_ptr<Watch> watch_;
};

}  // namespace rewire::net
