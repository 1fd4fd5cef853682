// A link over RDMA: its rails, the conversation about them (Control), and what happens when one
// fails. A rail that fails is fenced: each side moves its queues to error, waits for what had come
// before, and tells the other what it has got. Only then what is missing goes another way, so that
// nothing can land twice or late. The sending side joins the rail again, for ever, more and more
// seldom. While no rail between the NICs that NCCL has chosen works, other NICs of the two
// processes stand in. It stays with its link from one use to the next. Of one thread at a time.
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

namespace rewire::net {

// Of all connections that share them.
struct RailCounters {
  std::atomic<uint64_t> failed{0};    // rails between chosen NICs that were up
  std::atomic<uint64_t> back{0};      // and are again
  std::atomic<uint64_t> stood_in{0};  // rails between others that came up
};

// What the receiving side has, as its handle says.
struct PeerPorts {
  size_t chosen = 0;
  size_t others = 0;
};

struct ConnectionOptions {
  RailOptions rail;
  size_t piece_bytes = 128 << 10;     // of a message that is not small; more when it is very large
  Duration answer = seconds(300);     // for the peer's first frame, after its program accepts
  Duration join = seconds(5);         // for one attempt
  Duration arrival = seconds(30);     // for who has come to a listener, until a rail is joined
  Duration drain = milliseconds(50);  // for completions of a fenced rail; they come at once
  Duration first_retry = milliseconds(100);
  Duration most_retry = seconds(10);
  // A peer that refuses a request may be one that dies: its memory goes before its connections.
  Duration doubt = seconds(1);
  Duration stranded = seconds(30);  // device memory waits so long for a rail, or for its copy
  // Of a receiver; null: nobody moves what NCCL leaves alone.
  std::function<std::unique_ptr<Watch>(int fd, Watch::Look look)> watch = WatchByWorkers;
  std::function<Time()> now = Now;
  // Where queues are made and joined, and where device memory is copied.
  std::function<void(std::function<void()>)> run = RunInBackground;
  std::function<void(std::function<void()>)> copy = RunCopy;
  std::shared_ptr<RailCounters> counters = std::make_shared<RailCounters>();
  uint64_t seed = 0;  // 0: nobody can guess it
};

class Connection final : public Attachment, private Control::Listener {
 public:
  // The sender or the receiver that uses the connection.
  class End {
   public:
    virtual ~End() = default;
    virtual void Written(uint32_t id) = 0;
    virtual absl::Status Arrived(uint32_t immediate, uint32_t bytes) = 0;
    // For the peer, of a rail through which nothing comes any more.
    virtual std::string Report() = 0;
    // Both sides have fenced the rail, and this is the peer's report.
    virtual absl::Status Settle(size_t rail, std::string_view report) = 0;
    // Frames that are not about rails; as Control::Listener.
    virtual absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) = 0;
    virtual absl::StatusOr<bool> Hear(const FrameHeader& header, std::string_view payload) = 0;
    virtual void Said(const FrameHeader& piece) = 0;
  };

  // `link` owns it. `peer`: where it is the sending side.
  Connection(Link* link, const Nics& nics, const std::optional<PeerPorts>& peer,
             const ConnectionOptions& options);
  ~Connection() override;

  // True when it can be used; an error when no rail can be joined. Asked again and again.
  absl::StatusOr<bool> Establish();
  // Null: at rest.
  void SetEnd(End* end) { end_ = end; }
  // Nothing is under way that the peer would have to finish.
  [[nodiscard]] bool Calm() const;

  // Moves everything; the control connection only now and then while nothing is wrong. The failure,
  // once there is one.
  absl::Status Poll();
  // The same with the control connection, where nobody waits for anything: a peer that goes is no
  // news then.
  absl::Status Attend();
  // Rung where something is to be done that nobody waits for. From any thread.
  void SetBell(std::function<void()> bell) { bell_ = std::move(bell); }
  // What it does next waits neither for the peer nor for the caller.
  [[nodiscard]] bool Busy() const;
  void Fail(const absl::Status& status);
  [[nodiscard]] bool failed() const { return !failure_.ok(); }
  // Afresh: a copy shares a count, and this one may go to another thread.
  [[nodiscard]] absl::Status Failure() const { return {failure_.code(), failure_.message()}; }

  [[nodiscard]] Link& link() const { return *link_; }
  [[nodiscard]] const Nics& nics() const { return nics_; }
  [[nodiscard]] const ConnectionOptions& options() const { return options_; }
  // Which of nics() a rail uses.
  [[nodiscard]] size_t NicOf(size_t rail) const;
  [[nodiscard]] size_t rails() const { return tracks_.size(); }

  // Those that may be used now, a bit for each: those that stand in only if no other is up.
  [[nodiscard]] uint32_t Up() const;
  // Whether rails that stand in are among these.
  [[nodiscard]] bool StandIn(uint32_t rails) const { return rails >> total_ != 0; }
  // The one of these that would be through first with so much more, of equals the next in turn:
  // what is used at all is known to work. Nothing: none has room.
  [[nodiscard]] std::optional<size_t> Choose(size_t bytes, uint32_t rails);
  // Whether so many bytes may be copied into a request there.
  [[nodiscard]] bool Inlines(size_t rail, size_t bytes) const {
    return bytes <= tracks_[rail].rail.max_inline();
  }
  // Whether pieces of so many bytes are to go apart from their immediate there.
  [[nodiscard]] bool Apart(size_t rail, size_t bytes) const {
    return tracks_[rail].rail.Apart(bytes);
  }
  // Requests that belong together, of which the last one is told of when it is done. False: nothing
  // has been posted, and the rail is being fenced.
  bool Write(size_t rail, std::span<const rdma::SendWork> chain, size_t bytes);
  // A piece for this receive's buffer: its data, and behind them its immediate with the message's
  // bytes.
  bool WriteApart(size_t rail, rdma::SendWork piece, size_t bytes, uint64_t sequence,
                  uint32_t part);
  // Writes `bytes` of the ring to the peer's, from the entries of this receive of `count` buffers
  // on.
  bool WriteClear(size_t rail, uint64_t sequence, uint32_t count, size_t bytes);
  Control& control() { return control_; }
  FrameHeader Header(FrameKind kind) const;

  ClearRing ring;     // the sender's is written by the receiver, the receiver's is what it writes
  uint64_t next = 0;  // receive, on both sides; goes on from one use to the next

 private:
  enum class State {
    kDown,     // no queues; may be joined
    kMaking,   // they are made or joined in the background
    kOffered,  // the sender: an offer is out; the receiver: it has answered one
    kProbing,  // the sender: its queues are joined; whether anything gets through is found out
    kUp,
    kDraining,  // this side's queues are in error
    kFenced,    // and dropped; the peer's may not be
  };
  // What the background has of a rail, and nobody else until it is done.
  struct Making {
    explicit Making(Rail taken) : rail(std::move(taken)) {}
    Rail rail;
    Offer ours;
    std::string why;  // it did not work; empty: it did
    std::atomic<bool> done{false};
  };
  struct Track {
    explicit Track(std::shared_ptr<Nic> its) : nic(std::move(its)), rail(nic) {}
    std::shared_ptr<Nic> nic;
    Rail rail;
    std::shared_ptr<Making> making;
    bool joined = false;                  // what is made is joined with the peer's, too
    uint32_t probes = 0;                  // that have not come back
    std::optional<std::string> given_up;  // meanwhile
    // The receiver: an offer that came while an earlier one was still being answered.
    std::optional<std::pair<FrameHeader, std::string>> next_offer;
    State state = State::kDown;
    uint32_t life = 0;    // counts attempts to join
    Time due;             // of what is next in this state
    Time since;           // it is up
    bool failed = false;  // since it was up; the sender's
    Duration pause{};     // before the next attempt
    std::unique_ptr<rdma::MemoryRegion> ring;
    uint64_t peer_ring = 0;
    uint32_t peer_ring_rkey = 0;
    std::optional<std::string> report;  // the peer's, of this life
    std::string why;                    // it is not up
  };

  // rail_lives.cc
  void BeginJoin(size_t rail);
  // The first that is due, unless one of them is being joined.
  void BeginDue(size_t first, size_t end);
  // No chosen rail is up, and each has been tried.
  [[nodiscard]] bool NeedsOthers() const;
  absl::Status Answer(const FrameHeader& header, std::string_view payload);
  absl::Status TakeAnswer(Track* track, std::string_view payload);
  // Makes queues, or takes those that are, and joins them with the peer's if there is an offer.
  void Make(Track* track, const std::optional<Offer>& peer);
  void EndMaking(size_t rail);
  // The sender: something has got through on every queue.
  void GoUp(size_t rail);
  // Nothing comes through it any more; the queues go in the background.
  void Drop(Track* track);
  void Break(size_t rail, const std::string& why);
  void EndDrain(size_t rail);
  absl::Status SettleIfBoth(size_t rail);
  void Rest(Track* track, const std::string& why);
  void KeepTime();
  void SayOf(size_t rail, FrameKind kind, std::string payload = {});
  // From now on each attempt has its own time.
  void HearAnswer();
  absl::Status HearOfRail(const FrameHeader& header, std::string_view payload);
  uint64_t Random() { return MixedRandom(++randoms_); }
  [[nodiscard]] uint64_t MixedRandom(uint64_t n) const;

  static absl::Status WrongRequest(const Track& track, rdma::CompletionStatus status);
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
  size_t turn_ = 0;   // rail, of equals
  size_t total_ = 0;  // rails between chosen NICs, as the sending side says; the others follow
  End* end_ = nullptr;
  bool answered_ = false;  // the peer's program moves its side of the connection
  bool calm_ = false;
  bool attended_ = false;  // nobody waits for anything
  std::function<void()> bell_;
  uint64_t polls_ = 0;
  std::array<RailEvent, Rail::kBatch> events_;  // of one poll
  uint64_t randoms_ = 0;
  absl::Status doubt_;  // what the failure will be, unless the peer turns out to be gone
  Time doubt_until_;
  absl::Status failure_;
};

}  // namespace rewire::net
