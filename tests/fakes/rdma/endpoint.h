// A queue pair of the fake. endpoint.cc has its states and posts, requester.cc sends and retries,
// responder.cc checks and executes. The fabric, its driver and its queues use an endpoint, always
// under the fabric's lock.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/rdma/queue_pair.h"
#include "tests/fakes/rdma/completion_ring.h"
#include "tests/fakes/rdma/device_memory.h"
#include "tests/fakes/rdma/network.h"

namespace rewire::rdma::fake {

struct EndpointOptions {
  uint32_t max_send = 1;
  uint32_t max_receive = 1;
  uint32_t max_segments = 1;
  uint32_t max_inline = 0;
};

class Endpoint : public std::enable_shared_from_this<Endpoint> {
 public:
  Endpoint(Network* network, Node* node, Opened* opened, const EndpointOptions& options,
           std::shared_ptr<CompletionRing> sends, std::shared_ptr<CompletionRing> receives);
  ~Endpoint();

  [[nodiscard]] uint32_t number() const { return number_; }
  [[nodiscard]] QueuePairState state() const { return state_; }
  [[nodiscard]] const EndpointOptions& options() const { return options_; }
  Ece ece;  // a peer that agreed on other options does not understand our packets

  // Loses all further completions, which puts the queue pairs in error.
  void OverrunCompletions() {
    send_ring_->Overrun();
    receive_ring_->Overrun();
  }
  // These functions return 0 or an error number, as the verbs do.
  [[nodiscard]] int ToInit(const InitAttributes& attributes);
  [[nodiscard]] int ToReadyToReceive(const ReceiveAttributes& attributes);
  [[nodiscard]] int ToReadyToSend(const SendAttributes& attributes);
  void EnterError();
  void Reset();
  [[nodiscard]] int PostSend(const SendWork& work);
  [[nodiscard]] int PostReceive(const ReceiveWork& work);

  // Frees the slots of polled completions. Completions from before the last reset hold no slots.
  void FreeSlots(uint64_t resets, uint32_t sends, uint32_t receives);
  void Take(const Packet& packet);
  // Called when the region with this lkey is deregistered.
  void EndRegion(uint32_t lkey);

 private:
  struct Send {
    uint64_t id = 0;
    Operation operation = Operation::kWrite;
    std::vector<Segment> segments;
    uint64_t remote_address = 0;
    uint32_t rkey = 0;
    uint32_t immediate = 0;
    bool signalled = true;
    bool inlined = false;
    std::string inline_bytes;
    uint64_t bytes = 0;
    uint64_t first = 0;  // sequence number of its first packet
    uint64_t packets = 1;
    bool asked = false;  // a READ whose request has been sent
    [[nodiscard]] uint64_t end() const { return first + packets; }
  };
  struct Receive {
    uint64_t id = 0;
    std::vector<Segment> segments;
  };

  // requester.cc
  void Pump();
  void TransmitNext();
  // False if the bytes may not be read: the request fails.
  [[nodiscard]] bool Gather(const Send& send, uint64_t offset, uint64_t count,
                            std::string* out) const;
  [[nodiscard]] Send* SendAt(uint64_t sequence);
  void TakeAnswer(const Packet& packet);
  void TakeReadResponse(const Packet& packet, uint64_t sequence);
  void TakeNak(const Packet& packet, uint64_t sequence);
  // Acknowledges every packet before `end`.
  void Acknowledge(uint64_t end);
  void GoBack();
  void TryAgain();
  void ArmTimer();
  void AwaitDeadline();
  void OnTimer();
  void CompleteSend(CompletionStatus status);
  // The oldest request ends with this status; all others are flushed.
  void Fail(CompletionStatus status);

  // responder.cc
  void TakeRequest(const Packet& packet);
  [[nodiscard]] bool TakeWrite(const Packet& packet);
  [[nodiscard]] bool TakeSend(const Packet& packet);
  [[nodiscard]] bool TakeRead(const Packet& packet);
  [[nodiscard]] bool RespondRead(const Packet& packet);
  void Land(char* to, std::string_view bytes, uint32_t lkey);
  void CompleteReceive(CompletionStatus status, CompletionKind kind, uint64_t bytes,
                       std::optional<uint32_t> immediate);
  void SendNak(NakCode code);
  // This side has found an error of the peer: reports it and enters the error state.
  void Refuse(NakCode code);

  void Transmit(Packet packet);
  void EndArrivals(uint32_t lkey);
  void Flush();

  Network& network_;
  Node& node_;
  Opened& opened_;
  const EndpointOptions options_;
  const uint32_t number_;
  const std::shared_ptr<CompletionRing> send_ring_;
  const std::shared_ptr<CompletionRing> receive_ring_;

  QueuePairState state_ = QueuePairState::kReset;
  // Counts resets: events and completions from before the last reset are ignored.
  uint64_t resets_ = 0;
  Access access_;
  Path path_;
  uint32_t mtu_ = 0;
  uint32_t peer_ = 0;
  Duration rnr_wait_{};
  SendAttributes attributes_;
  Time last_arrival_;  // arrival time at the peer

  // Requester's state. Sequence numbers are packet numbers that do not wrap.
  std::deque<Send> sends_;  // not completed
  uint32_t send_slots_ = 0;
  uint32_t unsignalled_ = 0;  // completed since the last signalled completion
  uint64_t oldest_ = 0;       // first packet that is not acknowledged
  uint64_t next_ = 0;         // next packet to transmit
  uint64_t posted_ = 0;       // end of the posted packets
  uint32_t retries_left_ = 0;
  uint32_t rnr_retries_left_ = 0;
  Time rnr_until_;
  Time deadline_;
  bool transmit_scheduled_ = false;
  bool timer_scheduled_ = false;

  // Responder's state.
  std::deque<Receive> receives_;  // not completed
  uint32_t receive_slots_ = 0;
  uint64_t expected_ = 0;
  bool nak_sent_ = false;
  bool inside_ = false;    // the first packet of a message has arrived, but not the last
  uint64_t messages_ = 0;  // messages that have arrived completely
  uint64_t arrived_ = 0;   // bytes of the current message
  Landing landing_;
};

}  // namespace rewire::rdma::fake
