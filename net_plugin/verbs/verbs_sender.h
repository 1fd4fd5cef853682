// NCCL's sending end over RDMA: waits for the receiver's clear-to-send, cuts a message into pieces,
// and writes each piece on the rail that would finish it first. Pieces that a failed rail has not
// delivered are sent again on another rail or on the control connection. Threads: see
// net_plugin/transport/comm.h.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/send_message.h"
#include "net_plugin/verbs/staging.h"

namespace rewire::net {

class Links;

class VerbsSender final : public Sender, private Connection::End {
 public:
  // The link's attachment must be a Connection. `links` must outlive the object. The destructor
  // returns the link to `links`, unless unfinished work remains in the link.
  VerbsSender(std::unique_ptr<Link> link, Links* links);
  ~VerbsSender() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                       int fd) override;
  absl::Status Deregister(void* mr) override;
  absl::StatusOr<Request*> Isend(const void* data, size_t bytes, int tag, void* mr) override;
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  void Written(uint32_t id) override;
  absl::Status Arrived(uint32_t immediate, uint32_t bytes) override;
  std::string Report() override;
  absl::Status Settle(size_t rail, std::string_view report) override;
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override;
  absl::StatusOr<bool> TakeFrame(const FrameHeader& header, std::string_view payload) override;
  void FrameSent(const FrameHeader& piece) override;

  // Returns false if the connection has failed.
  [[nodiscard]] bool Poll();
  // Posts waiting pieces until none is left or no rail has room.
  void Pump();
  // Returns false if no rail has room for the message's next piece.
  bool PostNext(SendMessage* message);
  // Returns, as bits, the usable rails whose NICs have registered the memory on both sides.
  [[nodiscard]] uint32_t RailsFor(const SendMessage& message) const;
  // Returns the address of these bytes of a message in host memory; null: the copy has not ended.
  const char* InHost(const SendMessage& message, uint32_t piece, size_t offset, size_t bytes);
  void Queue(SendMessage* message);
  [[nodiscard]] std::optional<uint32_t> PartFor(int tag, ClearToSend* clear);
  SendMessage& At(uint64_t sequence, uint32_t part) {
    return messages_[sequence % kMaxRequests][part];
  }

  std::unique_ptr<Link> link_;
  Links* const links_;
  Connection& connection_;
  std::array<std::array<SendMessage, kMaxRecvs>, kMaxRequests> messages_;
  std::deque<SendMessage*> waiting_;
  uint32_t taken_ = 0;  // buffers of the next receive that already have a message
  Staging staging_;
  std::optional<std::pair<uint64_t, uint32_t>> staged_;  // sequence and id of the staged piece
  Time device_waiting_since_{};  // since device memory has been waiting for a rail or for its copy
};

}  // namespace rewire::net
