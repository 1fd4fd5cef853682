#include "net_plugin/verbs/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/random.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

// While no rail has a problem, every 64th poll checks the control connection and the device events.
constexpr uint64_t kLookEvery = 64;

}  // namespace

Connection::Connection(Link* link, const Nics& nics, const std::optional<PeerPorts>& peer,
                       const ConnectionOptions& options)
    : link_(link),
      sending_(peer.has_value()),
      nics_(nics),
      options_(options),
      seed_(options.seed != 0 ? options.seed : net::Random()),
      control_(&link->streams[0], this) {
  tracks_.reserve(kMostRails);
  // Keep-alive and the 30 s TCP_USER_TIMEOUT detect a peer whose machine is gone.
  const int on = 1;
  const unsigned patience = 30'000;
  const int fd = link->streams[0].fd();
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
  if (!sending_) return;
  total_ = std::min(std::max(nics_.chosen, peer->chosen), kMostRails);
  const size_t others = std::max(nics_.all.size() - nics_.chosen, peer->others);
  const size_t rails = std::min(total_ + others, kMostRails);
  for (size_t r = 0; r < rails; ++r) tracks_.emplace_back(nics_.all[NicOf(r)]);
  for (size_t r = 0; r < total_; ++r) BeginJoin(r);
}

Connection::~Connection() = default;

uint64_t Connection::MixedRandom(uint64_t n) const { return MixWord(seed_, n); }

size_t Connection::NicOf(size_t rail) const {
  const size_t others = nics_.all.size() - nics_.chosen;
  if (rail < total_ || others == 0) return rail % nics_.chosen;
  return nics_.chosen + (rail - total_) % others;
}

absl::StatusOr<bool> Connection::Establish() {
  if (!Poll()) return Failure();
  if (total_ == 0 || tracks_.size() < total_) return false;
  const auto settled = [](const Track& t) {
    return t.attempt > 0 && (t.state == State::kUp || t.state == State::kDown);
  };
  const auto others = tracks_.begin() + static_cast<ptrdiff_t>(total_);
  if (!std::all_of(tracks_.begin(), others, settled)) return false;
  if (Up() != 0) return control_.Silent();
  // The sending side decides when all rails have been tried.
  if (!sending_ || !std::all_of(others, tracks_.end(), settled)) return false;
  return absl::UnavailableError(
      absl::StrCat("join rails with ", peer(), ": no RDMA path: ", tracks_[0].why));
}

bool Connection::IsSettled() const {
  return !failed() && control_.Quiet() &&
         std::all_of(tracks_.begin(), tracks_.end(), [](const Track& t) {
           return t.state == State::kUp || t.state == State::kDown;
         });
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
  return !control_.Silent() || std::any_of(tracks_.begin(), tracks_.end(), [](const Track& t) {
    return t.state == State::kDraining;
  });
}

void Connection::PollRails() {
  for (size_t r = 0; r < tracks_.size() && failure_.ok(); ++r) {
    if (tracks_[r].rail.made()) PollRail(r);
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

absl::Status Connection::WrongRequest(const Track& track, rdma::CompletionStatus status) const {
  return absl::InternalError(
      absl::StrCat("work request to ", peer(), " on ", track.nic->name(),
                   ": completion status: ", std::string(rdma::Name(status))));
}

void Connection::PollRail(size_t rail) {
  Track& t = tracks_[rail];
  const absl::StatusOr<size_t> polled = t.rail.Poll(events_);
  if (!polled.ok()) {
    Break(rail, std::string(polled.status().message()));
    // No more completions come from this queue.
    if (t.state == State::kDraining) EndDrain(rail);
    return;
  }
  rdma::CompletionStatus failed = rdma::CompletionStatus::kSuccess;
  for (size_t i = 0; i < *polled; ++i) {
    const RailEvent& e = events_[i];
    if (e.kind == RailEvent::Kind::kFailed) {
      if (failed == rdma::CompletionStatus::kSuccess) failed = e.status;
    } else if (t.state == State::kProbing) {
      if (--t.probes == 0) GoUp(rail);
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
    if (WrongHere(failed) && t.state == State::kUp) return Fail(WrongRequest(t, failed));
    if (WrongThere(failed) && t.state == State::kUp && pending_error_.ok()) {
      pending_error_ = WrongRequest(t, failed);
      report_error_at_ = options_.now() + options_.error_grace;
    }
    Break(rail, std::string(rdma::Name(failed)));
  }
  if (t.state != State::kDraining) return;
  // A request that was posted just before the fence may never complete.
  if (t.rail.Drained() || (*polled == 0 && options_.now() >= t.due)) EndDrain(rail);
}

void Connection::Look() {
  for (const std::shared_ptr<Nic>& nic : nics_.all) nic->ReadEvents();
  for (size_t r = 0; r < tracks_.size(); ++r) {
    Track& t = tracks_[r];
    if (t.rail.made() && t.rail.Down())
      Break(r, "the local port is down, or its completion queue has an error");
  }
  // Frames after a close belong to the next use.
  if (!link_->closed) {
    if (absl::Status status = control_.Move(); !status.ok()) return Fail(status);
  }
  // Nothing above has unsettled the connection, so no deadline is pending.
  if (settled_) return;
  if (!pending_error_.ok() && options_.now() >= report_error_at_) return Fail(pending_error_);
  KeepTime();
  const auto chosen = tracks_.begin() + static_cast<ptrdiff_t>(std::min(total_, tracks_.size()));
  settled_ =
      pending_error_.ok() && control_.Silent() &&
      std::all_of(tracks_.begin(), chosen, [](const Track& t) { return t.state == State::kUp; }) &&
      std::all_of(chosen, tracks_.end(),
                  [](const Track& t) { return t.state == State::kUp || t.state == State::kDown; });
}

uint32_t Connection::Up() const {
  uint32_t up = 0;
  for (size_t r = 0; r < tracks_.size(); ++r) {
    if (r == total_ && up != 0) break;
    if (tracks_[r].state == State::kUp) up |= 1U << r;
  }
  return up;
}

std::optional<size_t> Connection::Choose(size_t bytes, uint32_t rails) {
  std::optional<size_t> best;
  uint64_t least = 0;
  for (size_t i = 0; i < tracks_.size(); ++i) {
    const size_t r = (turn_ + i) % tracks_.size();
    if ((rails >> r & 1) == 0 || !tracks_[r].rail.HasRoom()) continue;
    const uint64_t load = tracks_[r].rail.Load(bytes);
    if (best && load >= least) continue;
    best = r;
    least = load;
  }
  if (best) turn_ = *best + 1;
  return best;
}

bool Connection::Write(size_t rail, std::span<const rdma::SendWork> chain, size_t bytes) {
  const rdma::PostResult result = tracks_[rail].rail.Write(chain, bytes);
  if (!result.status.ok()) Break(rail, std::string(result.status.message()));
  return result.posted > 0;
}

bool Connection::WriteApart(size_t rail, rdma::SendWork piece, size_t bytes, uint64_t sequence,
                            uint32_t part) {
  const Track& t = tracks_[rail];
  const rdma::Segment total{reinterpret_cast<uintptr_t>(ring.Total(sequence, part)),
                            sizeof(uint32_t), t.ring->lkey()};
  rdma::SendWork told = piece;
  told.segments = {&total, 1};
  told.remote_address = t.peer_ring + ClearRing::OffsetOfTotal(sequence, part);
  told.rkey = t.peer_ring_rkey;
  told.inlined = Inlines(rail, sizeof(uint32_t));
  piece.operation = rdma::Operation::kWrite;
  piece.signalled = false;
  return Write(rail, std::array{piece, told}, bytes);
}

bool Connection::WriteClear(size_t rail, uint64_t sequence, uint32_t count, size_t bytes) {
  const Track& t = tracks_[rail];
  const rdma::Segment segment{reinterpret_cast<uintptr_t>(ring.Entries(sequence, count)),
                              static_cast<uint32_t>(bytes), t.ring->lkey()};
  rdma::SendWork work;
  work.segments = {&segment, 1};
  work.remote_address = t.peer_ring + ClearRing::OffsetOf(sequence, count);
  work.rkey = t.peer_ring_rkey;
  work.inlined = Inlines(rail, bytes);
  return Write(rail, {&work, 1}, bytes);
}

FrameHeader Connection::Header(FrameKind kind) const {
  FrameHeader header;
  header.kind = kind;
  header.use = link_->use;
  return header;
}

absl::Status Connection::MalformedFrame(const FrameHeader& header) const {
  return absl::DataLossError(absl::StrCat("control connection to ", peer(), ": malformed frame: ",
                                          FrameText(header), " (this use is ", link_->use, ")"));
}

absl::StatusOr<char*> Connection::PlaceOf(const FrameHeader& piece) {
  if (piece.use == link_->use && end_ != nullptr) return end_->PlaceOf(piece);
  return MalformedFrame(piece);
}

absl::StatusOr<bool> Connection::Hear(const FrameHeader& header, std::string_view payload) {
  switch (header.kind) {
    case FrameKind::kJoin:
    case FrameKind::kJoined:
    case FrameKind::kReady:
    case FrameKind::kRefused:
    case FrameKind::kFenced:
      if (absl::Status status = HearOfRail(header, payload); !status.ok()) return status;
      return true;
    default:
      if (header.use == link_->use && end_ != nullptr) return end_->Hear(header, payload);
      return MalformedFrame(header);
  }
}

void Connection::Said(const FrameHeader& piece) {
  if (end_ != nullptr) end_->Said(piece);
}

}  // namespace rewire::net
