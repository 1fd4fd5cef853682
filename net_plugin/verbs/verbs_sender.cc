#include "net_plugin/verbs/verbs_sender.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"

namespace rewire::net {
namespace {

// A piece's id in completions.
uint32_t IdOf(uint64_t sequence, uint32_t part, uint32_t piece) {
  return static_cast<uint32_t>(sequence % kMaxRequests) << 9 | part << 6 | piece;
}

}  // namespace

VerbsSender::VerbsSender(std::unique_ptr<Link> link, Links* links)
    : link_(std::move(link)),
      links_(links),
      connection_(static_cast<Connection&>(*link_->attachment)),
      staging_(connection_.options().copy) {
  for (auto& parts : messages_) {
    for (SendMessage& m : parts) m.comm = this;
  }
  connection_.SetEnd(this);
}

VerbsSender::~VerbsSender() {
  connection_.SetEnd(nullptr);
  bool clean = connection_.IsSettled() && taken_ == 0;
  for (const auto& parts : messages_) {
    clean = clean && std::all_of(parts.begin(), parts.end(),
                                 [](const SendMessage& m) { return !m.busy || m.IsDone(); });
  }
  if (!clean) return;
  FrameHeader close = connection_.Header(FrameKind::kClose);
  close.sequence = connection_.next;
  const absl::StatusOr<size_t> sent = link_->streams[0].Write(&close, sizeof close, nullptr, 0);
  if (sent.ok() && *sent == sizeof close) links_->ReturnSending(std::move(link_));
}

absl::StatusOr<void*> VerbsSender::Register(void* data, size_t bytes, int type) {
  return Registration::MakeHandle(connection_.nics(), {data, bytes, type},
                                  connection_.options().run);
}

absl::StatusOr<void*> VerbsSender::RegisterDmabuf(void* data, size_t bytes, int type,
                                                  uint64_t offset, int fd) {
  return Registration::MakeHandle(connection_.nics(), {data, bytes, type, fd, offset},
                                  connection_.options().run);
}

absl::Status VerbsSender::Deregister(void* mr) {
  Registration::DeleteHandle(mr);
  return absl::OkStatus();
}

std::optional<uint32_t> VerbsSender::PartFor(int tag, ClearToSend* clear) {
  for (uint32_t part = 0; part < kMaxRecvs; ++part) {
    const std::optional<ClearToSend> entry = connection_.ring.Read(connection_.next, part);
    if (!entry || part >= entry->count) return {};
    if (entry->tag != tag || (taken_ >> part & 1) != 0) continue;
    *clear = *entry;
    return part;
  }
  return {};
}

absl::StatusOr<Request*> VerbsSender::Isend(const void* data, size_t bytes, int tag, void* mr) {
  if (connection_.failed()) return connection_.Failure();
  ClearToSend clear;
  const std::optional<uint32_t> part = PartFor(tag, &clear);
  const uint64_t sequence = connection_.next;
  if (!part || At(sequence, *part).busy) {
    if (!Poll()) return connection_.Failure();
    if (!part && link_->peer_finished) {
      connection_.Fail(absl::UnavailableError(absl::StrCat(
          "send to ", connection_.peer(), ": the receiver has closed the connection")));
      return connection_.Failure();
    }
    return nullptr;
  }
  if (mr == nullptr && bytes > 0)
    return absl::InvalidArgumentError("send: the buffer is not registered");
  if (bytes > clear.bytes) {
    // The error belongs to the receiver, which reports it; this side returns Unavailable.
    FrameHeader header = connection_.Header(FrameKind::kTooLong);
    header.sequence = sequence;
    header.offset = clear.bytes;
    header.total = bytes;
    connection_.control().SendFrame(header);
    (void)connection_.control().Move();
    connection_.Fail(absl::UnavailableError(
        absl::StrCat("send message ", sequence, " to ", connection_.peer(), ": bytes=", bytes,
                     ": must be at most ", clear.bytes, ", the size of the peer's buffer")));
    return connection_.Failure();
  }
  taken_ |= 1U << *part;
  if (taken_ == (1U << clear.count) - 1) {
    taken_ = 0;
    ++connection_.next;
  }
  SendMessage& m = At(sequence, *part);
  m.busy = true;
  m.data = static_cast<const char*>(data);
  m.bytes = bytes;
  m.memory = static_cast<Registration*>(mr);
  m.clear = clear;
  m.sequence = sequence;
  m.part = *part;
  *connection_.ring.Total(sequence, *part) = static_cast<uint32_t>(bytes);
  m.Cut(connection_.options().piece_bytes);
  Queue(&m);
  Pump();
  return &m;
}

void VerbsSender::Queue(SendMessage* message) {
  if (std::exchange(message->queued, true)) return;
  waiting_.push_back(message);
}

void VerbsSender::Pump() {
  while (!waiting_.empty()) {
    SendMessage* const m = waiting_.front();
    if (m->waiting != 0 && !PostNext(m)) return;
    if (m->waiting != 0) continue;
    m->queued = false;
    waiting_.pop_front();
  }
}

uint32_t VerbsSender::RailsFor(const SendMessage& m) const {
  const uint32_t up = connection_.Up();
  if (m.bytes == 0) return up;
  uint32_t fit = 0;
  for (uint32_t left = up; left != 0; left &= left - 1) {
    const auto rail = static_cast<size_t>(std::countr_zero(left));
    const bool known = m.memory->Want(connection_.NicOf(rail)) != nullptr;
    if (known && m.clear.rkeys[rail] != 0) fit |= 1U << rail;
  }
  return fit;
}

bool VerbsSender::PostNext(SendMessage* m) {
  const auto piece = static_cast<uint32_t>(std::countr_zero(m->waiting));
  const size_t offset = m->OffsetOf(piece);
  const uint32_t bytes = m->BytesOf(piece);
  const uint64_t bit = uint64_t{1} << piece;
  const uint32_t rails = RailsFor(*m);
  const std::optional<size_t> rail = connection_.Choose(bytes, rails);
  const bool apart = rail && connection_.Apart(*rail, bytes);
  const uint32_t immediate = Pack({m->sequence, m->part, piece, apart, piece + 1 == m->pieces});
  if (rail) {
    rdma::Segment segment;
    rdma::SendWork work;
    if (bytes > 0) {
      segment = {reinterpret_cast<uintptr_t>(m->data) + offset, bytes,
                 m->memory->Find(connection_.NicOf(*rail))->lkey()};
      work.segments = {&segment, 1};
      work.inlined = m->memory->host() && connection_.Inlines(*rail, bytes);
    }
    work.id = IdOf(m->sequence, m->part, piece);
    work.operation = rdma::Operation::kWriteWithImmediate;
    work.remote_address = m->clear.address + offset;
    work.rkey = m->clear.rkeys[*rail];
    work.immediate = immediate;
    m->rail[piece] = static_cast<uint8_t>(*rail);
    m->waiting &= ~bit;
    const bool posted = apart ? connection_.WriteApart(*rail, work, bytes, m->sequence, m->part)
                              : connection_.Write(*rail, {&work, 1}, bytes);
    if (!posted) m->waiting |= bit;
    return posted;
  }
  if (rails != 0 || !m->carried() || !connection_.control().AllWritten()) return false;
  const char* const data = InHost(*m, piece, offset, bytes);
  if (data == nullptr && bytes > 0) return false;
  FrameHeader header = connection_.Header(FrameKind::kPiece);
  header.sequence = m->sequence;
  header.total = m->bytes;
  header.offset = offset;
  header.bytes = bytes;
  header.tag = static_cast<int32_t>(immediate);
  m->rail[piece] = SendMessage::kOnControl;
  connection_.control().SendPiece(header, data);
  m->waiting &= ~bit;
  return true;
}

const char* VerbsSender::InHost(const SendMessage& m, uint32_t piece, size_t offset, size_t bytes) {
  if (bytes == 0 || m.memory->host()) return m.data + offset;
  if (staging_.busy()) return nullptr;
  // A rail may have carried the previously staged piece in the meantime.
  const std::pair<uint64_t, uint32_t> wanted(m.sequence, IdOf(m.sequence, m.part, piece));
  if (staged_ == wanted) return staging_.Room(bytes);
  staged_ = wanted;
  staging_.Fetch(m.data + offset, bytes);
  return nullptr;
}

bool VerbsSender::Poll() {
  if (!connection_.Poll()) return false;
  if (const std::optional<absl::Status> ended = staging_.Ended(); ended && !ended->ok()) {
    connection_.Fail(*ended);
    return false;
  }
  Pump();
  const bool waits = staging_.busy() || (!waiting_.empty() && !waiting_.front()->carried() &&
                                         RailsFor(*waiting_.front()) == 0);
  if (!waits) {
    device_waiting_since_ = {};
  } else if (const Time now = connection_.options().now(); device_waiting_since_ == Time{}) {
    device_waiting_since_ = now;
  } else if (now - device_waiting_since_ > connection_.options().device_wait) {
    connection_.Fail(absl::UnavailableError(absl::StrCat(
        "send to ", connection_.peer(),
        ": no rail is left, and device memory was not copied to the TCP connection within ",
        ToMilliseconds(connection_.options().device_wait), " ms")));
  }
  return !connection_.failed();
}

absl::StatusOr<bool> VerbsSender::Test(Request* request, int* sizes) {
  auto* const m = static_cast<SendMessage*>(request);
  if (!m->IsDone()) {
    const bool polled = Poll();
    if (!m->IsDone()) {
      if (!polled) return connection_.Failure();
      return false;
    }
  }
  if (sizes != nullptr) *sizes = static_cast<int>(m->bytes);
  m->busy = false;
  return true;
}

void VerbsSender::Written(uint32_t id) {
  messages_[id >> 9][id >> 6 & 7].done |= uint64_t{1} << (id & 63);
}

absl::Status VerbsSender::Arrived(uint32_t, uint32_t) {
  return absl::DataLossError(absl::StrCat("send to ", connection_.peer(),
                                          ": the peer wrote data into a connection on which it "
                                          "only receives"));
}

std::string VerbsSender::Report() {
  Cleared cleared;
  cleared.head = connection_.next;
  for (uint32_t i = 0; i < kMaxRequests; ++i) {
    if (connection_.ring.Whole(cleared.head + i)) cleared.seen |= 1U << i;
  }
  return Encode(cleared);
}

absl::Status VerbsSender::Settle(size_t rail, std::string_view report) {
  const absl::StatusOr<Received> received = DecodeReceived(report);
  if (!received.ok()) {
    return absl::DataLossError(absl::StrCat("fence rail ", rail, " to ", connection_.peer(), ": ",
                                            std::string(received.status().message())));
  }
  for (auto& parts : messages_) {
    for (SendMessage& m : parts) {
      if (!m.Settle(rail, *received)) {
        return absl::UnavailableError(absl::StrCat(
            "send message ", m.sequence, " to ", connection_.peer(),
            ": the peer's device acknowledged pieces that did not arrive in its memory"));
      }
      if (m.waiting != 0) Queue(&m);
    }
  }
  Pump();
  return absl::OkStatus();
}

absl::StatusOr<char*> VerbsSender::PlaceOf(const FrameHeader& piece) {
  return connection_.MalformedFrame(piece, "only the sender sends pieces");
}

absl::StatusOr<bool> VerbsSender::TakeFrame(const FrameHeader& header, std::string_view payload) {
  if (header.kind == FrameKind::kFinished && !link_->peer_finished) {
    link_->peer_finished = true;
    // The receiver has all data, whatever the state of the rails.
    for (auto& parts : messages_) {
      for (SendMessage& m : parts) m.Finish();
    }
    return true;
  }
  if (header.kind != FrameKind::kClear) {
    return connection_.MalformedFrame(header, "the receiver does not send this kind now");
  }
  const size_t bytes = payload.size();
  if (bytes == 0 || bytes % sizeof(ClearToSend) != 0 || bytes > kMaxRecvs * sizeof(ClearToSend)) {
    return connection_.MalformedFrame(header, absl::StrCat("bytes must be 1 to ", kMaxRecvs,
                                                           " entries of ", sizeof(ClearToSend)));
  }
  ClearToSend entries[kMaxRecvs];
  std::memcpy(entries, payload.data(), bytes);
  if (header.sequence - connection_.next < kMaxRequests) {
    const auto count = static_cast<uint32_t>(bytes / sizeof(ClearToSend));
    std::memcpy(connection_.ring.Entries(header.sequence, count), entries, bytes);
  }
  // Entries that the sender already has may come again with the keys of fallback NICs.
  for (uint32_t part = 0; part < bytes / sizeof(ClearToSend); ++part) {
    SendMessage& m = At(header.sequence, part);
    if (m.busy && m.sequence == header.sequence) m.clear.rkeys = entries[part].rkeys;
  }
  return true;
}

void VerbsSender::FrameSent(const FrameHeader& piece) {
  const Immediate i = Unpack(static_cast<uint32_t>(piece.tag));
  At(piece.sequence, i.part).done |= uint64_t{1} << i.piece;
}

}  // namespace rewire::net
