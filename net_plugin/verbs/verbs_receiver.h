// NCCL's receiving end over RDMA: tells the sender where messages may go, and marks the pieces as
// they come. A piece counts once, however many rails it was tried on.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "net_plugin/core/comm.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/flush.h"
#include "net_plugin/verbs/registration.h"
#include "net_plugin/verbs/staging.h"

namespace rewire::net {

class Links;

class VerbsReceiver final : public Receiver, private Connection::End {
 public:
  // The link, whose attachment is a Connection, goes back to `links` unless something is left in
  // it.
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
  struct Part {
    char* data = nullptr;
    size_t room = 0;
    Registration* memory = nullptr;
    uint64_t pieces = 0;  // that have come
    uint64_t all = 0;     // 0: not known yet
    size_t bytes = 0;     // with them
    uint32_t told = 0;    // the message's, if the sender has told them
  };
  struct Receive : Request {
    bool busy = false;
    uint64_t sequence = 0;
    uint32_t count = 0;
    uint32_t left = 0;  // parts that are not whole
    std::array<Part, kMaxRecvs> parts;
    bool cleared = false;  // the sender has been told, or is being told
    size_t rail = 0;       // on which
    uint32_t keys = 0;     // rails for which it has the keys
    [[nodiscard]] bool owed() const { return busy && left > 0 && !cleared; }
  };
  // What the sender was told over the control connection was told on this rail.
  static constexpr size_t kOnControl = 255;

  void Written(uint32_t) override {}
  absl::Status Arrived(uint32_t immediate, uint32_t bytes) override;
  std::string Report() override;
  absl::Status Settle(size_t rail, std::string_view report) override;
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override;
  absl::StatusOr<bool> Hear(const FrameHeader& header, std::string_view payload) override;
  void Said(const FrameHeader&) override {}

  // While there is no request.
  Watch::Next Attend();
  absl::StatusOr<Receive*> Begin(int count, void* const* data, const size_t* bytes, const int* tags,
                                 void* const* mrs);
  // Tells the sender of receives, several at once, before it has to wait: when those that it does
  // not know are no fewer than those that it knows and that are not whole.
  void ClearInTime();
  // Of all that it does not know, as far as there is room.
  void Clear();
  // Of the first ones, as many as are next to each other in the ring. False: there was no room.
  bool ClearSome();
  // Rails on which it can be told now, with the keys that there are by now.
  uint32_t WaysFor(Receive* receive);
  // Rails for which there are keys of all its buffers; puts them into entries of the ring.
  static uint32_t PutKeys(const Connection& connection, const Receive& receive,
                          ClearToSend* entries);
  void SayClear(const Receive& receive, const ClearToSend* entries);
  // Tells the sender the keys of NICs that stand in, as soon as there are any.
  void TellKeys();
  [[nodiscard]] Receive& At(uint64_t sequence) { return receives_[sequence % kMaxRequests]; }
  absl::StatusOr<Receive*> Find(uint32_t immediate);
  // A piece that came over control may have to go on to the device: not if this is false.
  bool BeginStore(const FrameHeader& piece);
  absl::Status EndStore();

  std::unique_ptr<Link> link_;
  Links* const links_;
  Connection& connection_;
  std::array<Receive, kMaxRequests> receives_;
  Flush flush_;
  Staging staging_;
  std::optional<FrameHeader> storing_;  // the piece that is being copied
  Time stored_{};                       // since when
  uint64_t unfinished_ = 0;
  uint32_t requests_ = 0;  // that are not given back; flushes, which move nothing, aside
  uint64_t uncleared_;     // the sender has been told of all receives before this one
  std::unique_ptr<Watch> watch_;
};

}  // namespace rewire::net
