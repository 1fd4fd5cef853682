// NCCL's sending end over RDMA: waits for the receiver's clear-to-send, cuts a message into pieces,
// and writes each on the rail that would be through with it first. What a failed rail has not
// brought there goes another way.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "net_plugin/core/comm.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/immediate.h"
#include "net_plugin/verbs/registration.h"
#include "net_plugin/verbs/staging.h"

namespace rewire::net {

class Links;

class VerbsSender final : public Sender, private Connection::End {
 public:
  // The link, whose attachment is a Connection, goes back to `links` unless something is left in
  // it.
  VerbsSender(std::unique_ptr<Link> link, Links* links);
  ~VerbsSender() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::StatusOr<void*> RegisterDmabuf(void* data, size_t bytes, int type, uint64_t offset,
                                       int fd) override;
  absl::Status Deregister(void* mr) override;
  absl::StatusOr<Request*> Isend(const void* data, size_t bytes, int tag, void* mr) override;
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  struct Message : Request {
    bool busy = false;
    const char* data = nullptr;
    size_t bytes = 0;
    Registration* memory = nullptr;
    ClearToSend clear;  // where it goes
    uint64_t sequence = 0;
    uint32_t part = 0;
    uint32_t pieces = 0;
    size_t piece_bytes = 0;
    // Masks of pieces.
    uint64_t waiting = 0;  // to be posted
    uint64_t done = 0;
    std::array<uint8_t, kMostPieces> rail{};  // that a posted one is on
    bool queued = false;                      // in waiting_
    // It can go over the control connection.
    [[nodiscard]] bool carried() const {
      return clear.carried != 0 && (memory == nullptr || memory->carried());
    }
    [[nodiscard]] uint64_t all() const {
      return pieces == 64 ? ~uint64_t{0} : (uint64_t{1} << pieces) - 1;
    }
  };
  // A piece that goes over the control connection is on this rail.
  static constexpr uint8_t kOnControl = 255;

  void Written(uint32_t id) override;
  absl::Status Arrived(uint32_t immediate, uint32_t bytes) override;
  std::string Report() override;
  absl::Status Settle(size_t rail, std::string_view report) override;
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override;
  absl::StatusOr<bool> Hear(const FrameHeader& header, std::string_view payload) override;
  void Said(const FrameHeader& piece) override;

  absl::Status Poll();
  // Posts what waits, as far as there is room.
  void Pump();
  bool PostNext(Message* message);
  // Those that may be used now and know the memory on both sides.
  [[nodiscard]] uint32_t RailsFor(const Message& message) const;
  // Where these bytes of a message lie in host memory; null: not yet.
  const char* InHost(const Message& message, uint32_t piece, size_t offset, size_t bytes);
  void Queue(Message* message);
  [[nodiscard]] std::optional<uint32_t> PartFor(int tag, ClearToSend* clear);
  Message& At(uint64_t sequence, uint32_t part) { return messages_[sequence % kMaxRequests][part]; }

  std::unique_ptr<Link> link_;
  Links* const links_;
  Connection& connection_;
  std::array<std::array<Message, kMaxRecvs>, kMaxRequests> messages_;
  std::deque<Message*> waiting_;
  uint32_t taken_ = 0;  // buffers of the next receive that have their message
  Staging staging_;
  std::optional<std::pair<uint64_t, uint32_t>>
      staged_;       // which message's and piece's: sequence, id
  Time stranded_{};  // since device memory waits for a rail, or for its copy
};

}  // namespace rewire::net
