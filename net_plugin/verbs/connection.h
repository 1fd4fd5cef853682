// A link over RDMA: chooses a rail for each write, and routes frames and completions to the sender
// or receiver that uses the connection. The control connection (Control) carries frames about its
// rails; RailLifecycle joins, fences and rejoins each rail. The missing pieces of a failed rail are
// sent another way only after both sides have fenced the rail, so no piece can arrive twice or
// late. While no rail between the NICs that NCCL chose works, fallback rails between other NICs of
// the two processes take over. The connection stays with its link from one use to the next.
// Thread-compatible: owned by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/verbs/clear_to_send.h"
#include "net_plugin/verbs/connection_options.h"
#include "net_plugin/verbs/control.h"
#include "net_plugin/verbs/rail_lifecycle.h"
#include "reconfig/base/clock.h"

namespace rewire::net {

// The receiving side's numbers of ports, as its handle gives them.
struct PeerPorts {
  size_t chosen = 0;
  size_t others = 0;
};

class Connection final : public Attachment,
                         private Control::Listener,
                         private RailLifecycle::Owner {
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
    virtual absl::StatusOr<bool> TakeFrame(const FrameHeader& header, std::string_view payload) = 0;
    virtual void FrameSent(const FrameHeader& piece) = 0;
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
  void SetWaker(std::function<void()> waker) { context_.waker = std::move(waker); }
  // True if the next step waits neither for the peer nor for the caller.
  [[nodiscard]] bool Busy() const;
  void Fail(const absl::Status& status) override;
  [[nodiscard]] bool failed() const { return !failure_.ok(); }
  // Returns a new status: a copy shares a reference count, and the result may go to another thread.
  [[nodiscard]] absl::Status Failure() const { return {failure_.code(), failure_.message()}; }

  [[nodiscard]] Link& link() const { return *link_; }
  [[nodiscard]] const Nics& nics() const { return nics_; }
  [[nodiscard]] const ConnectionOptions& options() const { return options_; }
  // Returns the index in nics() of the NIC that a rail uses.
  [[nodiscard]] size_t NicOf(size_t rail) const;
  [[nodiscard]] size_t rails() const { return rails_.size(); }

  // Returns a mask of the usable rails; fallback rails are included only if no other rail is up.
  [[nodiscard]] uint32_t Up() const;
  // True if fallback rails are in use.
  [[nodiscard]] bool IsFallback() const { return !settled_ && Up() >> total_ != 0; }
  // Returns the rail of the mask that would finish first with `bytes` more bytes, or nothing if
  // none has room. Equal rails take turns, so that every rail in use is known to work.
  [[nodiscard]] std::optional<size_t> Choose(size_t bytes, uint32_t rails);
  // True if `bytes` bytes may be copied into a request on this rail.
  [[nodiscard]] bool Inlines(size_t rail, size_t bytes) const {
    return bytes <= rails_[rail].rail().max_inline();
  }
  // True if pieces of `bytes` bytes are sent apart from their immediate on this rail.
  [[nodiscard]] bool Apart(size_t rail, size_t bytes) const {
    return rails_[rail].rail().Apart(bytes);
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
  [[nodiscard]] absl::Status MalformedFrame(const FrameHeader& header,
                                            const std::string& why) const override;
  FrameHeader Header(FrameKind kind) const;

  ClearRing ring;     // the receiver's copy is the source of its WRITEs to the sender's
  uint64_t next = 0;  // next receive, on both sides; continues from one use to the next

 private:
  // RailLifecycle::Owner.
  void SendFrame(const RailLifecycle& rail, FrameKind kind, std::string payload) override;
  std::string Report() override;
  absl::Status Settle(const RailLifecycle& rail, std::string_view report) override;
  // Control::Listener.
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override;
  absl::StatusOr<bool> TakeFrame(const FrameHeader& header, std::string_view payload) override;
  void FrameSent(const FrameHeader& piece) override;

  // Why a frame that is not about rails cannot be taken.
  [[nodiscard]] const char* WhyUnused(const FrameHeader& header) const;
  absl::Status TakeRailFrame(const FrameHeader& header, std::string_view payload);
  // The peer has sent its first frame about a rail.
  void NoteAnswer();
  void AddRail();
  void Break(RailLifecycle* rail, const std::string& why);
  // Joins the first due rail of the range, unless a rail of the range is being joined.
  void BeginDue(size_t first, size_t end);
  // True if no chosen rail is up and each has been tried.
  [[nodiscard]] bool NeedsOthers() const;
  void KeepTime();
  [[nodiscard]] absl::Status WrongRequest(const RailLifecycle& rail,
                                          rdma::CompletionStatus status) const;
  void PollRail(RailLifecycle* rail);
  void PollRails();
  void Look();

  Link* const link_;
  const Nics nics_;
  const ConnectionOptions options_;
  RailLifecycle::Context context_;
  Control control_;
  std::vector<RailLifecycle> rails_;
  size_t turn_ = 0;   // next among equal rails
  size_t total_ = 0;  // rails between chosen NICs, as the sending side says; fallback rails follow
  End* end_ = nullptr;
  bool settled_ = false;   // every rail works or is a fallback at rest, and nothing waits
  bool attended_ = false;  // Attend() is running: no request is outstanding
  uint64_t polls_ = 0;
  std::array<RailEvent, Rail::kBatch> events_;  // of one poll
  absl::Status pending_error_;  // the failure to report, unless the peer turns out to be gone
  Time report_error_at_;
  absl::Status failure_;
};

}  // namespace rewire::net
