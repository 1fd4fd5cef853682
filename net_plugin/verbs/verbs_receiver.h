// NCCL's receiving end over RDMA: sends clear-to-send entries and marks the pieces as they arrive.
// A piece counts once, even if several rails tried it. Threads: see core/comm.h.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/flush.h"
#include "net_plugin/verbs/registration.h"
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
  struct Part {
    char* data = nullptr;
    size_t room = 0;
    Registration* memory = nullptr;
    uint64_t pieces = 0;  // mask of arrived pieces
    uint64_t all = 0;     // mask of all pieces; 0: not known yet
    size_t bytes = 0;     // bytes of the arrived pieces
    uint32_t told = 0;    // the message's byte count, if the sender has sent it
  };
  struct Receive : Request {
    bool busy = false;
    uint64_t sequence = 0;
    uint32_t count = 0;
    uint32_t left = 0;  // incomplete parts
    std::array<Part, kMaxRecvs> parts;
    bool cleared = false;  // the sender has been told, or is being told
    size_t rail = 0;       // that carried the clear-to-send
    uint32_t keys = 0;     // mask of rails for which the sender has the keys
    [[nodiscard]] bool owed() const { return busy && left > 0 && !cleared; }
  };
  // Stands for the control connection in Receive::rail.
  static constexpr size_t kOnControl = 255;

  void Written(uint32_t) override {}
  absl::Status Arrived(uint32_t immediate, uint32_t bytes) override;
  std::string Report() override;
  absl::Status Settle(size_t rail, std::string_view report) override;
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override;
  absl::StatusOr<bool> Hear(const FrameHeader& header, std::string_view payload) override;
  void Said(const FrameHeader&) override {}

  // Polls the connection while no request is outstanding.
  Watch::Next Attend();
  absl::StatusOr<Receive*> Begin(int count, void* const* data, const size_t* bytes, const int* tags,
                                 void* const* mrs);
  // Sends clear-to-send entries in batches, before the sender has to wait. A batch is due when the
  // receives that the sender does not know are at least as many as its known incomplete receives.
  void ClearInTime();
  // Sends all entries that the sender does not know, as far as there is room.
  void Clear();
  // Sends the first entries that are adjacent in the ring. False: no room.
  bool ClearSome();
  // Returns the rails that can carry the entries now, and updates the keys.
  uint32_t WaysFor(Receive* receive);
  // Returns the rails that have keys for all of its buffers, and writes the keys into `entries`.
  static uint32_t PutKeys(const Connection& connection, const Receive& receive,
                          ClearToSend* entries);
  void SayClear(const Receive& receive, const ClearToSend* entries);
  // Sends the keys of fallback NICs as soon as they exist.
  void TellKeys();
  [[nodiscard]] Receive& At(uint64_t sequence) { return receives_[sequence % kMaxRequests]; }
  absl::StatusOr<Receive*> Find(uint32_t immediate);
  // Starts the copy of a piece from the control connection to the device; false if none is needed.
  bool BeginStore(const FrameHeader& piece);
  void EndStore();

  std::unique_ptr<Link> link_;
  Links* const links_;
  Connection& connection_;
  std::array<Receive, kMaxRequests> receives_;
  Flush flush_;
  Staging staging_;
  std::optional<FrameHeader> storing_;  // the piece that is being copied
  Time stored_{};                       // start of that copy
  uint64_t unfinished_ = 0;
  uint32_t requests_ = 0;  // outstanding requests, without flushes, which move nothing
  uint64_t uncleared_;     // the sender has been told of all receives before this one
  std::unique_ptr<Watch> watch_;
};

}  // namespace rewire::net
