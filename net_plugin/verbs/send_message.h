// One message that is being sent over RDMA. It is cut into pieces, each of which waits, is posted
// on a rail, or is done. VerbsSender posts the pieces. Thread-compatible: owned by the thread that
// polls the connection.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/clear_to_send.h"
#include "net_plugin/verbs/offer.h"
#include "net_plugin/verbs/registration.h"

namespace rewire::net {

struct SendMessage : Request {
  // Stands for the control connection in `rail`.
  static constexpr uint8_t kOnControl = 255;

  // Cuts the message into pieces of at least this size, which all wait.
  void Cut(size_t least_bytes);
  [[nodiscard]] size_t OffsetOf(uint32_t piece) const { return piece * piece_bytes; }
  [[nodiscard]] uint32_t BytesOf(uint32_t piece) const {
    return static_cast<uint32_t>(std::min(bytes - OffsetOf(piece), piece_bytes));
  }
  // The receiver has reported about a failed rail: the posted pieces that arrived are done, and the
  // others wait again. False: the report lacks a piece whose arrival the peer's device has already
  // acknowledged to NCCL.
  [[nodiscard]] bool Settle(size_t failed_rail, const Received& report);
  // The receiver has all data.
  void Finish();

  // Mask of all pieces.
  [[nodiscard]] uint64_t all() const {
    return pieces == 64 ? ~uint64_t{0} : (uint64_t{1} << pieces) - 1;
  }
  [[nodiscard]] bool IsDone() const { return done == all(); }
  // True if the message can go over the control connection.
  [[nodiscard]] bool carried() const {
    return clear.carried != 0 && (memory == nullptr || memory->carried());
  }

  bool busy = false;  // NCCL has a request for it
  const char* data = nullptr;
  size_t bytes = 0;
  Registration* memory = nullptr;
  ClearToSend clear;  // the receiver's buffer
  uint64_t sequence = 0;
  uint32_t part = 0;
  uint32_t pieces = 0;  // 0: the slot has not been used
  size_t piece_bytes = 0;
  uint64_t waiting = 0;                     // mask of the pieces to be posted
  uint64_t done = 0;                        // mask
  std::array<uint8_t, kMostPieces> rail{};  // of each posted piece
  bool queued = false;                      // in VerbsSender's queue
};

}  // namespace rewire::net
