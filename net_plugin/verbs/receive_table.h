// The outstanding receives of a receiver over RDMA: their buffers, and the pieces that have
// arrived. A piece counts once, even if several rails tried it. VerbsReceiver begins and ends
// receives, and ClearSender tells the sender about them. Thread-compatible: owned by the thread
// that polls the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/clear_to_send.h"
#include "net_plugin/verbs/offer.h"
#include "net_plugin/verbs/registration.h"

namespace rewire::net {

// One buffer of a receive.
struct ReceivePart {
  char* data = nullptr;
  size_t room = 0;
  Registration* memory = nullptr;
  uint64_t pieces = 0;  // mask of arrived pieces
  uint64_t all = 0;     // mask of all pieces; 0: not known yet
  size_t bytes = 0;     // bytes of the arrived pieces
  uint32_t told = 0;    // the message's byte count, if the sender has sent it
  // Bytes of the message.
  [[nodiscard]] size_t size() const { return told != 0 ? told : bytes; }
};

struct Receive : Request {
  bool busy = false;
  uint64_t sequence = 0;
  uint32_t count = 0;
  uint32_t left = 0;  // incomplete parts
  std::array<ReceivePart, kMaxRecvs> parts;
  // Owned by ClearSender.
  bool cleared = false;  // the sender has been told, or is being told
  size_t rail = 0;       // that carried the clear-to-send
  uint32_t keys = 0;     // mask of rails for which the sender has the keys
  // True if data are outstanding.
  [[nodiscard]] bool IsOpen() const { return busy && left > 0; }
};

class ReceiveTable {
 public:
  // `ring` has the byte counts that the sender writes; `peer` is the sender's address, for errors.
  // Both must outlive the table.
  ReceiveTable(Comm* comm, ClearRing* ring, const std::string* peer);

  [[nodiscard]] Receive& At(uint64_t sequence) { return receives_[sequence % kMaxRequests]; }
  [[nodiscard]] auto begin() { return receives_.begin(); }
  [[nodiscard]] auto end() { return receives_.end(); }
  // Number of incomplete receives.
  [[nodiscard]] uint64_t unfinished() const { return unfinished_; }

  // Begins a receive in its slot, which must not be busy. Returns the receive, without its buffers.
  Receive* Begin(uint64_t sequence, uint32_t count);
  // Returns the receive of a piece. DataLoss: the piece belongs to no outstanding receive.
  absl::StatusOr<Receive*> Find(uint32_t immediate);
  // Marks a piece of `bytes` bytes. DataLoss: the peer may not send this piece.
  absl::Status Arrive(uint32_t immediate, uint32_t bytes);
  // The report of what has arrived; `next` is the sequence of the next receive.
  [[nodiscard]] Received Report(uint64_t next) const;

 private:
  ClearRing* const ring_;
  const std::string* const peer_;
  std::array<Receive, kMaxRequests> receives_;
  uint64_t unfinished_ = 0;
};

}  // namespace rewire::net
