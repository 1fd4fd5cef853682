// A link over RDMA: its rails, the control connection about the rails (Control), and the recovery
// from a failed rail. A failed rail is fenced: each side moves its queue pairs to the error state,
// drains the earlier completions, and reports to the peer what arrived. Only then are the missing
// pieces sent another way, so no piece can arrive twice or late. The sending side retries the join
// of the rail forever, at growing intervals. While no rail between the NICs that NCCL chose works,
// fallback rails between other NICs of the two processes take over. The connection stays with its
// link from one use to the next. Thread-compatible: owned by one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/verbs/background.h"
#include "net_plugin/verbs/clear_to_send.h"
#include "net_plugin/verbs/control.h"
#include "net_plugin/verbs/rail.h"
#include "net_plugin/verbs/watch.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/counters.h"

namespace rewire::net {

// Counters for all connections that share the object.
struct RailCounters {
  Counted failed{Counter::kNetRailsFailed};
  Counted back{Counter::kNetRailsBack};
  Counted fallback{Counter::kNetRailsFallback};
};

// The receiving side's numbers of ports, as its handle gives them.
struct PeerPorts {
  size_t chosen = 0;
  size_t others = 0;
};

struct ConnectionOptions {
  RailOptions rail;
  size_t piece_bytes = 128 << 10;     // piece size, except for small and very large messages
  Duration answer = seconds(300);     // for the peer's first frame, after its program accepts
  Duration join = seconds(5);         // for one attempt
  Duration arrival = seconds(30);     // until an accepted link has joined its first rail
  Duration drain = milliseconds(50);  // for completions of a fenced rail; they come at once
  Duration first_retry = milliseconds(100);
  Duration most_retry = seconds(10);
  // A peer that refuses a request may be exiting: its memory goes before its connections do.
  Duration error_grace = seconds(1);
  Duration device_wait = seconds(30);  // limit for device memory to wait for a rail or for its copy
  // For a receiver that NCCL does not poll. Null: nothing moves such a connection.
  std::function<std::unique_ptr<Watch>(int fd, Watch::Look look)> watch = WatchByWorkers;
  std::function<Time()> now = Now;
  // Runs the creation and joining of queue pairs, and the copies of device memory.
  std::function<void(std::function<void()>)> run = RunInBackground;
  std::function<void(std::function<void()>)> copy = RunCopy;
  std::shared_ptr<RailCounters> counters = std::make_shared<RailCounters>();
  uint64_t seed = 0;  // 0: an unpredictable seed
};

class Connection final : public Attachment, private Control::Listener {
 public:
  // The interface to the sender or receiver that uses the connection.
  class End {
   public:
    virtual ~End() = default;
    virtual void Written(uint32_t id) = 0;
    virtual absl::Status Arrived(uint32_t immediate, uint32_t bytes) = 0;
    // Returns the report for the peer about a rail that delivers nothing any more.
    virtual std::string Report() = 0;
    // Both sides have fenced the rail; `report` is the peer's.
    virtual absl::Status Settle(size_t rail, std::string_view report) = 0;
    // Frames that are not about rails; see Control::Listener.
    virtual absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) = 0;
    virtual absl::StatusOr<bool> Hear(const FrameHeader& header, std::string_view payload) = 0;
    virtual void Said(const FrameHeader& piece) = 0;
  };

  // `link` owns the connection. `peer` is set on the sending side only.
  Connection(Link* link, const Nics& nics, const std::optional<PeerPorts>& peer,
             const ConnectionOptions& options);
  ~Connection() override;

  // Returns true when usable, false to be called again, and an error if no rail can be joined.
  absl::StatusOr<bool> Establish();
  // Null: no sender or receiver uses the connection.
  void SetEnd(End* end) { end_ = end; }
  // True if no work is under way that the peer would have to finish.
  [[nodiscard]] bool IsSettled() const;

  // Moves everything, but polls the control connection only occasionally while no rail has a
  // problem. Returns false if the connection has failed; see Failure().
  [[nodiscard]] bool Poll();
  // Like Poll(), but always polls the control connection. Call while no request is outstanding: a
  // peer that disconnects is then logged as INFO instead of WARN.
  [[nodiscard]] bool Attend();
  // Sets the thread-safe callback that requests a poll for work that no NCCL request waits for.
  void SetWaker(std::function<void()> waker) { waker_ = std::move(waker); }
  // True if the next step waits neither for the peer nor for the caller.
  [[nodiscard]] bool Busy() const;
  void Fail(const absl::Status& status);
  [[nodiscard]] bool failed() const { return !failure_.ok(); }
  // Returns a new status: a copy shares a reference count, and the result may go to another thread.
  [[nodiscard]] absl::Status Failure() const { return {failure_.code(), failure_.message()}; }

  [[nodiscard]] Link& link() const { return *link_; }
  [[nodiscard]] const Nics& nics() const { return nics_; }
  [[nodiscard]] const ConnectionOptions& options() const { return options_; }
  // Returns the index in nics() of the NIC that a rail uses.
  [[nodiscard]] size_t NicOf(size_t rail) const;
  [[nodiscard]] size_t rails() const { return tracks_.size(); }

  // Returns a mask of the usable rails; fallback rails are included only if no other rail is up.
  [[nodiscard]] uint32_t Up() const;
  // True if fallback rails are in use.
  [[nodiscard]] bool IsFallback() const { return !settled_ && Up() >> total_ != 0; }
  // Returns the rail of the mask that would finish first with `bytes` more bytes, or nothing if
  // none has room. Equal rails take turns, so that every rail in use is known to work.
  [[nodiscard]] std::optional<size_t> Choose(size_t bytes, uint32_t rails);
  // True if `bytes` bytes may be copied into a request on this rail.
  [[nodiscard]] bool Inlines(size_t rail, size_t bytes) const {
    return bytes <= tracks_[rail].rail.max_inline();
  }
  // True if pieces of `bytes` bytes are sent apart from their immediate on this rail.
  [[nodiscard]] bool Apart(size_t rail, size_t bytes) const {
    return tracks_[rail].rail.Apart(bytes);
  }
  // Posts a chain of requests; only the last one's completion is reported. Returns false if nothing
  // was posted; the rail is then being fenced.
  bool Write(size_t rail, std::span<const rdma::SendWork> chain, size_t bytes);
  // Writes a piece for this receive's buffer: its data, then its immediate with the byte count.
  bool WriteApart(size_t rail, rdma::SendWork piece, size_t bytes, uint64_t sequence,
                  uint32_t part);
  // Writes `bytes` of the ring to the peer's ring, starting at the entries of this receive, which
  // has `count` buffers.
  bool WriteClear(size_t rail, uint64_t sequence, uint32_t count, size_t bytes);
  Control& control() { return control_; }
  // The peer's address on the control connection, for errors.
  [[nodiscard]] const std::string& peer() const { return link_->streams[0].peer(); }
  // The error for a frame that is not valid on this connection or in this state.
  [[nodiscard]] absl::Status MalformedFrame(const FrameHeader& header) const;
  FrameHeader Header(FrameKind kind) const;

  ClearRing ring;     // the receiver's copy is the source of its WRITEs to the sender's
  uint64_t next = 0;  // next receive, on both sides; continues from one use to the next

 private:
  enum class State {
    kDown,     // no queue pairs; may be joined
    kMaking,   // queue pairs are created or joined in the background
    kOffered,  // the sender has sent an offer; the receiver has answered one
    kProbing,  // the sender's queue pairs are joined; probes check that data get across
    kUp,
    kDraining,  // this side's queue pairs are in error
    kFenced,    // dropped on this side; the peer may still drain
  };
  // The background work's part of a rail; no other thread uses it until `done`.
  struct Making {
    explicit Making(Rail taken) : rail(std::move(taken)) {}
    Rail rail;
    Offer ours;
    std::string why;  // reason of the failure; empty: success
    std::atomic<bool> done{false};
  };
  struct Track {
    explicit Track(std::shared_ptr<Nic> its) : nic(std::move(its)), rail(nic) {}
    std::shared_ptr<Nic> nic;
    Rail rail;
    std::shared_ptr<Making> making;
    bool joined = false;                   // the queue pairs are also joined with the peer's
    uint32_t probes = 0;                   // outstanding probes
    std::optional<std::string> abandoned;  // reason why the attempt was abandoned meanwhile
    // The receiver: an offer that arrived while an earlier offer was still being answered.
    std::optional<std::pair<FrameHeader, std::string>> next_offer;
    State state = State::kDown;
    uint32_t attempt = 0;  // counts attempts to join
    Time due;              // deadline of this state's next step
    Time since;            // start of state kUp
    bool failed = false;   // failed since it was up; used by the sender
    Duration pause{};      // before the next attempt
    std::unique_ptr<rdma::MemoryRegion> ring;
    uint64_t peer_ring = 0;
    uint32_t peer_ring_rkey = 0;
    std::optional<std::string> report;  // the peer's report of this attempt
    std::string why;                    // reason why the rail is not up
  };

  // The following functions are in rail_states.cc.
  void BeginJoin(size_t rail);
  // Joins the first due rail of the range, unless a rail of the range is being joined.
  void BeginDue(size_t first, size_t end);
  // True if no chosen rail is up and each has been tried.
  [[nodiscard]] bool NeedsOthers() const;
  absl::Status Answer(const FrameHeader& header, std::string_view payload);
  absl::Status TakeAnswer(Track* track, const FrameHeader& header, std::string_view payload);
  // Creates queue pairs or takes existing ones; joins them with the peer's if there is an offer.
  void Make(Track* track, const std::optional<Offer>& peer);
  void EndMaking(size_t rail);
  // The sender: data have crossed on every queue pair.
  void GoUp(size_t rail);
  // Destroys the queue pairs in the background; the rail delivers nothing any more.
  void Drop(Track* track);
  void Break(size_t rail, const std::string& why);
  void EndDrain(size_t rail);
  absl::Status SettleIfBoth(size_t rail);
  void SetDown(Track* track, const std::string& why);
  void KeepTime();
  void SayOf(size_t rail, FrameKind kind, std::string payload = {});
  // The peer has answered; from now on each attempt has its own deadline.
  void HearAnswer();
  absl::Status HearOfRail(const FrameHeader& header, std::string_view payload);
  uint64_t Random() { return MixedRandom(++randoms_); }
  [[nodiscard]] uint64_t MixedRandom(uint64_t n) const;

  [[nodiscard]] absl::Status WrongRequest(const Track& track, rdma::CompletionStatus status) const;
  void PollRail(size_t rail);
  void PollRails();
  void Look();
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override;
  absl::StatusOr<bool> Hear(const FrameHeader& header, std::string_view payload) override;
  void Said(const FrameHeader& piece) override;

  Link* const link_;
  const bool sending_;
  const Nics nics_;
  const ConnectionOptions options_;
  const uint64_t seed_;
  Control control_;
  std::vector<Track> tracks_;
  size_t turn_ = 0;   // next among equal rails
  size_t total_ = 0;  // rails between chosen NICs, as the sending side says; fallback rails follow
  End* end_ = nullptr;
  bool answered_ = false;  // the peer's program polls its side of the connection
  bool settled_ = false;
  bool attended_ = false;  // Attend() is running: no request is outstanding
  std::function<void()> waker_;
  uint64_t polls_ = 0;
  std::array<RailEvent, Rail::kBatch> events_;  // of one poll
  uint64_t randoms_ = 0;
  absl::Status pending_error_;  // the failure to report, unless the peer turns out to be gone
  Time report_error_at_;
  absl::Status failure_;
};

}  // namespace rewire::net
