#include "net_plugin/verbs/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

// While no rail has a problem, every 64th poll checks the control connection and the device events.
constexpr uint64_t kLookEvery = 64;

}  // namespace

Connection::Connection(Link* link, const Nics& nics, const std::optional<PeerPorts>& peer,
                       const ConnectionOptions& options)
    : link_(link),
      nics_(nics),
      options_(options),
      context_{.sending = peer.has_value(),
               .options = options_,
               .peer = link->streams[0].peer(),
               .ring = &ring,
               .owner = this,
               .seed = options.seed != 0 ? options.seed : Random()},
      control_(&link->streams[0], this) {
  rails_.reserve(kMostRails);
  // Keep-alive and the 30 s TCP_USER_TIMEOUT detect a peer whose machine is gone.
  const int on = 1;
  const unsigned patience = 30'000;
  const int fd = link->streams[0].fd();
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
  if (!context_.sending) return;
  total_ = std::min(std::max(nics_.chosen, peer->chosen), kMostRails);
  const size_t others = std::max(nics_.all.size() - nics_.chosen, peer->others);
  const size_t rails = std::min(total_ + others, kMostRails);
  while (rails_.size() < rails) AddRail();
  for (size_t r = 0; r < total_; ++r) rails_[r].BeginJoin();
}

Connection::~Connection() = default;

void Connection::AddRail() {
  const size_t number = rails_.size();
  rails_.emplace_back(number, number >= total_, nics_.all[NicOf(number)], &context_);
}

size_t Connection::NicOf(size_t rail) const {
  const size_t others = nics_.all.size() - nics_.chosen;
  if (rail < total_ || others == 0) return rail % nics_.chosen;
  return nics_.chosen + (rail - total_) % others;
}

absl::StatusOr<bool> Connection::Establish() {
  if (!Poll()) return Failure();
  if (total_ == 0 || rails_.size() < total_) return false;
  const auto settled = [](const RailLifecycle& r) { return r.attempt() > 0 && r.IsAtRest(); };
  const auto others = rails_.begin() + static_cast<ptrdiff_t>(total_);
  if (!std::all_of(rails_.begin(), others, settled)) return false;
  if (Up() != 0) return control_.AllWritten();
  // The sending side decides when all rails have been tried.
  if (!context_.sending || !std::all_of(others, rails_.end(), settled)) return false;
  return absl::UnavailableError(
      absl::StrCat("join rails with ", peer(), ": no RDMA path: ", rails_[0].why()));
}

bool Connection::IsSettled() const {
  return !failed() && control_.Idle() &&
         std::all_of(rails_.begin(), rails_.end(),
                     [](const RailLifecycle& r) { return r.IsAtRest(); });
}

void Connection::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  const std::string text(status.message());
  if (attended_ && absl::IsUnavailable(status)) {
    REWIRE_INFO("net plugin: %s", text.c_str());
  } else {
    REWIRE_WARN("net plugin: %s", text.c_str());
  }
}

bool Connection::Busy() const {
  return !control_.AllWritten() || std::any_of(rails_.begin(), rails_.end(), [](const auto& r) {
    return r.state() == RailLifecycle::State::kDraining;
  });
}

void Connection::PollRails() {
  for (RailLifecycle& r : rails_) {
    if (!failure_.ok()) return;
    if (r.rail().made()) PollRail(&r);
  }
}

bool Connection::Poll() {
  PollRails();
  if (failure_.ok() && (!settled_ || ++polls_ % kLookEvery == 0)) Look();
  return failure_.ok();
}

bool Connection::Attend() {
  attended_ = true;
  PollRails();
  if (failure_.ok()) Look();
  attended_ = false;
  return failure_.ok();
}

absl::Status Connection::WrongRequest(const RailLifecycle& rail,
                                      rdma::CompletionStatus status) const {
  return absl::InternalError(
      absl::StrCat("work request to ", peer(), " on ", rail.nic().name(),
                   ": completion status: ", std::string(rdma::Name(status))));
}

void Connection::PollRail(RailLifecycle* rail) {
  RailLifecycle& r = *rail;
  const absl::StatusOr<size_t> polled = r.rail().Poll(events_);
  if (!polled.ok()) {
    settled_ = false;
    return r.BreakQueue(std::string(polled.status().message()));
  }
  rdma::CompletionStatus failed = rdma::CompletionStatus::kSuccess;
  for (size_t i = 0; i < *polled; ++i) {
    const RailEvent& e = events_[i];
    if (e.kind == RailEvent::Kind::kFailed) {
      if (failed == rdma::CompletionStatus::kSuccess) failed = e.status;
    } else if (r.state() == RailLifecycle::State::kProbing) {
      r.EndProbe();
    } else if (end_ == nullptr) {
      continue;
    } else if (e.kind == RailEvent::Kind::kWritten) {
      end_->Written(e.id);
    } else if (absl::Status status = end_->Arrived(e.immediate, e.bytes); !status.ok()) {
      return Fail(status);
    }
  }
  // Handled after the successful completions, because the report must include them.
  if (failed != rdma::CompletionStatus::kSuccess) {
    if (WrongHere(failed) && r.up()) return Fail(WrongRequest(r, failed));
    if (WrongThere(failed) && r.up() && pending_error_.ok()) {
      pending_error_ = WrongRequest(r, failed);
      report_error_at_ = options_.now() + options_.error_grace;
    }
    Break(rail, std::string(rdma::Name(failed)));
  }
  r.EndPoll(*polled == 0);
}

void Connection::Break(RailLifecycle* rail, const std::string& why) {
  settled_ = false;
  rail->Break(why);
}

void Connection::Look() {
  for (const std::shared_ptr<Nic>& nic : nics_.all) nic->ReadEvents();
  for (RailLifecycle& r : rails_) {
    if (r.rail().made() && r.rail().Down())
      Break(&r, "the local port is down, or its completion queue has an error");
  }
  // Frames after a close belong to the next use.
  if (!link_->closed) {
    if (absl::Status status = control_.Move(); !status.ok()) return Fail(status);
  }
  // Nothing above has unsettled the connection, so no deadline is pending.
  if (settled_) return;
  if (!pending_error_.ok() && options_.now() >= report_error_at_) return Fail(pending_error_);
  KeepTime();
  const auto chosen = rails_.begin() + static_cast<ptrdiff_t>(std::min(total_, rails_.size()));
  settled_ = pending_error_.ok() && control_.AllWritten() &&
             std::all_of(rails_.begin(), chosen, [](const RailLifecycle& r) { return r.up(); }) &&
             std::all_of(chosen, rails_.end(), [](const RailLifecycle& r) { return r.IsAtRest(); });
}

uint32_t Connection::Up() const {
  uint32_t up = 0;
  for (size_t r = 0; r < rails_.size(); ++r) {
    if (r == total_ && up != 0) break;
    if (rails_[r].up()) up |= 1U << r;
  }
  return up;
}

std::optional<size_t> Connection::Choose(size_t bytes, uint32_t rails) {
  std::optional<size_t> best;
  uint64_t least = 0;
  for (size_t i = 0; i < rails_.size(); ++i) {
    const size_t r = (turn_ + i) % rails_.size();
    const Rail& rail = rails_[r].rail();
    if ((rails >> r & 1) == 0 || !rail.HasRoom()) continue;
    const uint64_t load = rail.Load(bytes);
    if (best && load >= least) continue;
    best = r;
    least = load;
  }
  if (best) turn_ = *best + 1;
  return best;
}

bool Connection::Write(size_t rail, std::span<const rdma::SendWork> chain, size_t bytes) {
  const rdma::PostResult result = rails_[rail].rail().Write(chain, bytes);
  if (!result.status.ok()) Break(&rails_[rail], std::string(result.status.message()));
  return result.posted > 0;
}

bool Connection::WriteApart(size_t rail, rdma::SendWork piece, size_t bytes, uint64_t sequence,
                            uint32_t part) {
  const RailLifecycle& r = rails_[rail];
  const rdma::Segment total{reinterpret_cast<uintptr_t>(ring.Total(sequence, part)),
                            sizeof(uint32_t), r.ring_lkey()};
  rdma::SendWork told = piece;
  told.segments = {&total, 1};
  told.remote_address = r.peer_ring() + ClearRing::OffsetOfTotal(sequence, part);
  told.rkey = r.peer_ring_rkey();
  told.inlined = Inlines(rail, sizeof(uint32_t));
  piece.operation = rdma::Operation::kWrite;
  piece.signalled = false;
  return Write(rail, std::array{piece, told}, bytes);
}

bool Connection::WriteClear(size_t rail, uint64_t sequence, uint32_t count, size_t bytes) {
  const RailLifecycle& r = rails_[rail];
  const rdma::Segment segment{reinterpret_cast<uintptr_t>(ring.Entries(sequence, count)),
                              static_cast<uint32_t>(bytes), r.ring_lkey()};
  rdma::SendWork work;
  work.segments = {&segment, 1};
  work.remote_address = r.peer_ring() + ClearRing::OffsetOf(sequence, count);
  work.rkey = r.peer_ring_rkey();
  work.inlined = Inlines(rail, bytes);
  return Write(rail, {&work, 1}, bytes);
}

FrameHeader Connection::Header(FrameKind kind) const {
  FrameHeader header;
  header.kind = kind;
  header.use = link_->use;
  return header;
}

absl::Status Connection::MalformedFrame(const FrameHeader& header, const std::string& why) const {
  return absl::DataLossError(absl::StrCat("control connection to ", peer(),
                                          ": malformed frame: ", FrameText(header), ": ", why,
                                          " (this use is ", link_->use, ")"));
}

void Connection::SendFrame(const RailLifecycle& rail, FrameKind kind, std::string payload) {
  FrameHeader header = Header(kind);
  header.offset = rail.number();
  header.sequence = rail.attempt();
  header.total = total_;
  control_.SendFrame(header, std::move(payload));
  settled_ = false;
}

std::string Connection::Report() {
  if (end_ != nullptr) return end_->Report();
  return context_.sending ? Encode(Cleared{next, 0}) : Encode(Received{next, {}});
}

absl::Status Connection::Settle(const RailLifecycle& rail, std::string_view report) {
  return end_ == nullptr ? absl::OkStatus() : end_->Settle(rail.number(), report);
}

const char* Connection::WhyUnused(const FrameHeader& header) const {
  return header.use != link_->use ? "the frame belongs to another use of the link"
                                  : "no sender or receiver uses the connection";
}

absl::StatusOr<char*> Connection::PlaceOf(const FrameHeader& piece) {
  if (piece.use == link_->use && end_ != nullptr) return end_->PlaceOf(piece);
  return MalformedFrame(piece, WhyUnused(piece));
}

absl::StatusOr<bool> Connection::TakeFrame(const FrameHeader& header, std::string_view payload) {
  switch (header.kind) {
    case FrameKind::kJoin:
    case FrameKind::kJoined:
    case FrameKind::kReady:
    case FrameKind::kRefused:
    case FrameKind::kFenced:
      if (absl::Status status = TakeRailFrame(header, payload); !status.ok()) return status;
      return true;
    default:
      if (header.use == link_->use && end_ != nullptr) return end_->TakeFrame(header, payload);
      return MalformedFrame(header, WhyUnused(header));
  }
}

void Connection::FrameSent(const FrameHeader& piece) {
  if (end_ != nullptr) end_->FrameSent(piece);
}

void Connection::NoteAnswer() {
  if (std::exchange(context_.answered, true)) return;
  for (RailLifecycle& r : rails_) r.NoteAnswer();
}

absl::Status Connection::TakeRailFrame(const FrameHeader& header, std::string_view payload) {
  NoteAnswer();
  settled_ = false;
  if (header.offset >= kMostRails) {
    return MalformedFrame(header, absl::StrCat("the rail must be less than ", kMostRails));
  }
  if (!context_.sending) {
    if (header.total == 0 || header.total > kMostRails) {
      return MalformedFrame(header, absl::StrCat("the rails must be 1 to ", kMostRails));
    }
    if (total_ != 0 && header.total != total_) {
      return MalformedFrame(header, absl::StrCat("the rails were ", total_));
    }
    total_ = header.total;
    while (rails_.size() <= header.offset) AddRail();
  }
  if (header.offset >= rails_.size()) {
    return MalformedFrame(header, absl::StrCat("the rail must be less than ", rails_.size()));
  }
  return rails_[header.offset].TakeFrame(header, payload);
}

bool Connection::NeedsOthers() const {
  return std::all_of(rails_.begin(), rails_.begin() + static_cast<ptrdiff_t>(total_),
                     [](const RailLifecycle& r) { return !r.up() && !r.why().empty(); });
}

void Connection::BeginDue(size_t first, size_t end) {
  const Time now = options_.now();
  RailLifecycle* due = nullptr;
  for (size_t r = first; r < end; ++r) {
    if (rails_[r].IsJoining()) return;
    if (due == nullptr && rails_[r].IsDue(now)) due = &rails_[r];
  }
  if (due != nullptr) due->BeginJoin();
}

void Connection::KeepTime() {
  for (RailLifecycle& r : rails_) r.KeepTime();
  if (!context_.sending || link_->peer_finished) return;
  BeginDue(0, total_);
  // One fallback rail is enough.
  if (NeedsOthers() && Up() == 0) BeginDue(total_, rails_.size());
}

}  // namespace rewire::net
