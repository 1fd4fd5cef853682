#include "net_plugin/verbs/verbs_receiver.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"
#include "net_plugin/verbs/immediate.h"

namespace rewire::net {

VerbsReceiver::VerbsReceiver(std::unique_ptr<Link> link, Links* links)
    : link_(std::move(link)),
      links_(links),
      connection_(static_cast<Connection&>(*link_->attachment)),
      flush_(this),
      staging_(connection_.options().copy),
      uncleared_(connection_.next) {
  for (Receive& r : receives_) r.comm = this;
  connection_.SetEnd(this);
  watch_ = connection_.options().watch(link_->streams[0].fd(), [this] { return Attend(); });
  if (watch_ != nullptr) connection_.SetWaker(watch_->Waker());
}

VerbsReceiver::~VerbsReceiver() {
  watch_.reset();
  connection_.SetWaker({});
  connection_.SetEnd(nullptr);
  if (connection_.failed() || unfinished_ > 0) return;
  if (connection_.IsSettled()) {
    links_->ReturnReceiving(std::move(link_));
    return;
  }
  // A rail has failed, so the link ends; the frame tells the sender that no one needs the link.
  connection_.control().Say(connection_.Header(FrameKind::kFinished));
  (void)connection_.control().Move();
}

absl::StatusOr<void*> VerbsReceiver::Register(void* data, size_t bytes, int type) {
  auto made =
      Registration::Make(connection_.nics(), {data, bytes, type}, connection_.options().run);
  if (!made.ok()) return made.status();
  return made->release();
}

absl::StatusOr<void*> VerbsReceiver::RegisterDmabuf(void* data, size_t bytes, int type,
                                                    uint64_t offset, int fd) {
  auto made = Registration::Make(connection_.nics(), {data, bytes, type, fd, offset},
                                 connection_.options().run);
  if (!made.ok()) return made.status();
  return made->release();
}

absl::Status VerbsReceiver::Deregister(void* mr) {
  delete static_cast<Registration*>(mr);
  return absl::OkStatus();
}

Watch::Next VerbsReceiver::Attend() {
  // Frames after a close belong to the next use.
  if (!connection_.Attend() || link_->closed) return Watch::Next::kNothing;
  return connection_.Busy() ? Watch::Next::kAtOnce : Watch::Next::kReadable;
}

absl::StatusOr<Request*> VerbsReceiver::Irecv(int count, void* const* data, const size_t* bytes,
                                              const int* tags, void* const* mrs) {
  if (requests_ == 0 && watch_ != nullptr && !watch_->Enter()) return nullptr;
  const absl::StatusOr<Receive*> begun = Begin(count, data, bytes, tags, mrs);
  if (begun.ok() && *begun != nullptr) ++requests_;
  if (requests_ == 0 && watch_ != nullptr) watch_->Leave(connection_.Busy());
  return begun;
}

absl::StatusOr<VerbsReceiver::Receive*> VerbsReceiver::Begin(int count, void* const* data,
                                                             const size_t* bytes, const int* tags,
                                                             void* const* mrs) {
  if (connection_.failed()) return connection_.Failure();
  if (count < 1 || count > kMaxRecvs) {
    return absl::InvalidArgumentError(
        absl::StrCat("receive: buffers=", count, ": must be 1 to ", kMaxRecvs));
  }
  Receive& r = At(connection_.next);
  if (r.busy) {
    if (!connection_.Poll()) return connection_.Failure();
    ClearInTime();
    return nullptr;
  }
  for (int i = 0; i < count; ++i) {
    if (mrs == nullptr || mrs[i] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("receive: buffer ", i, " is not registered"));
    }
    if (bytes[i] > UINT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("receive: buffer ", i, ": bytes=", bytes[i], ": must be less than 4 GiB"));
    }
  }
  r.busy = true;
  r.sequence = connection_.next++;
  r.count = r.left = static_cast<uint32_t>(count);
  ClearToSend* const entries = connection_.ring.Entries(r.sequence, r.count);
  for (uint32_t i = 0; i < r.count; ++i) {
    auto* const memory = static_cast<Registration*>(mrs[i]);
    r.parts[i] = {static_cast<char*>(data[i]), bytes[i], memory};
    ClearToSend& e = entries[i] = {};
    e.address = reinterpret_cast<uintptr_t>(data[i]);
    e.bytes = static_cast<uint32_t>(bytes[i]);
    e.tag = tags[i];
    e.count = r.count;
    e.carried = memory->carried() ? 1 : 0;
    e.mark = r.sequence + 1;
  }
  ++unfinished_;
  r.cleared = false;
  if (link_->closed) {
    connection_.Fail(absl::UnavailableError(
        absl::StrCat("receive message ", r.sequence, " from ", connection_.peer(),
                     ": the sender has closed the connection")));
    return connection_.Failure();
  }
  ClearInTime();
  return &r;
}

void VerbsReceiver::ClearInTime() {
  if (unfinished_ <= 2 * (connection_.next - uncleared_)) Clear();
}

void VerbsReceiver::Clear() {
  while (uncleared_ < connection_.next) {
    if (!At(uncleared_).owed()) {
      ++uncleared_;
    } else if (!ClearSome()) {
      return;
    }
  }
}

uint32_t VerbsReceiver::PutKeys(const Connection& connection, const Receive& r,
                                ClearToSend* entries) {
  uint32_t keys = 0;
  for (size_t rail = 0; rail < connection.rails(); ++rail) {
    bool all = true;
    for (uint32_t i = 0; i < r.count; ++i) {
      const rdma::MemoryRegion* const known = r.parts[i].memory->Find(connection.NicOf(rail));
      entries[i].rkeys[rail] = known != nullptr ? known->rkey() : 0;
      all = all && known != nullptr;
    }
    if (all) keys |= 1U << rail;
  }
  return keys;
}

void VerbsReceiver::TellKeys() {
  const uint32_t up = connection_.Up();
  for (Receive& r : receives_) {
    if (!r.busy || r.left == 0 || !r.cleared || (up & ~r.keys) == 0) continue;
    for (uint32_t left = up & ~r.keys; left != 0; left &= left - 1) {
      const size_t nic = connection_.NicOf(static_cast<size_t>(std::countr_zero(left)));
      for (uint32_t i = 0; i < r.count; ++i) (void)r.parts[i].memory->Want(nic);
    }
    // Uses a copy of the ring's entries: a NIC may still be reading the ring.
    std::array<ClearToSend, kMaxRecvs> entries;
    std::copy_n(connection_.ring.Entries(r.sequence, r.count), r.count, entries.begin());
    const uint32_t keys = PutKeys(connection_, r, entries.data());
    if (keys != r.keys) SayClear(r, entries.data());
    r.keys = keys;
  }
}

void VerbsReceiver::SayClear(const Receive& r, const ClearToSend* entries) {
  FrameHeader header = connection_.Header(FrameKind::kClear);
  header.sequence = r.sequence;
  connection_.control().Say(
      header, {reinterpret_cast<const char*>(entries), r.count * sizeof(ClearToSend)});
}

uint32_t VerbsReceiver::WaysFor(Receive* r) {
  r->keys = PutKeys(connection_, *r, connection_.ring.Entries(r->sequence, r->count));
  return connection_.Up() & r->keys;
}

bool VerbsReceiver::ClearSome() {
  const uint64_t first = uncleared_;
  // Without a usable rail, the control connection carries the entry, and later the keys after it.
  const uint32_t ways = WaysFor(&At(first));
  std::optional<size_t> rail = kOnControl;
  const bool single = At(first).count == 1;
  uint64_t end = first + 1;
  if (ways == 0) {
    SayClear(At(first), connection_.ring.Entries(first, At(first).count));
  } else {
    while (end < connection_.next && end % kMaxRequests != 0 && At(end).owed() &&
           (At(end).count == 1) == single && WaysFor(&At(end)) == ways) {
      ++end;
    }
    const size_t bytes = ClearRing::Bytes(first, end, At(end - 1).count);
    rail = connection_.Choose(bytes, ways);
    if (!rail) return false;  // a later call will find room
    if (!connection_.WriteClear(*rail, first, At(first).count, bytes)) return false;
  }
  for (uint64_t s = first; s < end; ++s) {
    At(s).rail = *rail;
    At(s).cleared = true;
  }
  uncleared_ = end;
  return true;
}

absl::StatusOr<Request*> VerbsReceiver::Iflush(int count, void* const* data, void* const* mrs) {
  // One READ of the last buffer follows the writes of all buffers.
  for (int i = count - 1; i >= 0; --i) {
    const auto* memory = static_cast<const Registration*>(mrs[i]);
    if (memory == nullptr || memory->host()) continue;
    return flush_.Begin(connection_.nics(), data[i], *memory, connection_.options());
  }
  return nullptr;
}

absl::StatusOr<bool> VerbsReceiver::Test(Request* request, int* sizes) {
  if (request->flush) return flush_.Test(static_cast<Flush::Flushing*>(request));
  auto* const r = static_cast<Receive*>(request);
  if (r->left > 0) {
    if (connection_.Poll() && storing_) EndStore();
    if (r->left > 0) {
      if (connection_.failed()) return connection_.Failure();
      ClearInTime();
      if (connection_.IsFallback()) TellKeys();
      return false;
    }
  }
  for (uint32_t i = 0; sizes != nullptr && i < r->count; ++i) {
    const Part& part = r->parts[i];
    sizes[i] = static_cast<int>(part.told != 0 ? part.told : part.bytes);
  }
  r->busy = false;
  if (--requests_ == 0 && watch_ != nullptr) watch_->Leave(connection_.Busy());
  return true;
}

absl::StatusOr<VerbsReceiver::Receive*> VerbsReceiver::Find(uint32_t immediate) {
  const Immediate i = Unpack(immediate);
  Receive& r = At(i.sequence);
  if (r.busy && (r.sequence & kSequenceMask) == i.sequence && i.part < r.count) return &r;
  return absl::DataLossError(absl::StrCat("receive from ", connection_.peer(),
                                          ": a piece names no outstanding receive: sequence=",
                                          i.sequence, " buffer=", i.part, " piece=", i.piece));
}

absl::Status VerbsReceiver::Arrived(uint32_t immediate, uint32_t bytes) {
  const absl::StatusOr<Receive*> found = Find(immediate);
  if (!found.ok()) return found.status();
  const Immediate i = Unpack(immediate);
  Part& part = (*found)->parts[i.part];
  const uint64_t bit = uint64_t{1} << i.piece;
  if ((part.pieces & bit) != 0) {
    return absl::DataLossError(absl::StrCat("receive message ", (*found)->sequence, " from ",
                                            connection_.peer(), ": piece ", i.piece, " of buffer ",
                                            i.part, " arrived twice"));
  }
  part.pieces |= bit;
  if (i.apart) {
    const uint32_t* const total = connection_.ring.Total((*found)->sequence, i.part);
    part.told = __atomic_load_n(total, __ATOMIC_RELAXED);
  }
  part.bytes += bytes;
  if (i.last) part.all = bit | (bit - 1);
  if (part.pieces != part.all) return absl::OkStatus();
  if (--(*found)->left == 0) --unfinished_;
  return absl::OkStatus();
}

std::string VerbsReceiver::Report() {
  Received received;
  received.next = connection_.next;
  for (const Receive& r : receives_) {
    if (!r.busy || r.left == 0) continue;
    Received::Receive& out = received.receives.emplace_back();
    out.sequence = r.sequence;
    for (uint32_t i = 0; i < r.count; ++i) out.pieces.push_back(r.parts[i].pieces);
  }
  return Encode(received);
}

absl::Status VerbsReceiver::Settle(size_t rail, std::string_view report) {
  const std::optional<Cleared> cleared = DecodeCleared(report);
  if (!cleared) {
    return absl::DataLossError(
        absl::StrCat("fence rail ", rail, " to ", connection_.peer(),
                     ": malformed report of the sender: bytes=", report.size()));
  }
  for (Receive& r : receives_) {
    if (!r.busy || r.left == 0 || !r.cleared || r.rail != rail) continue;
    const uint64_t ahead = r.sequence - cleared->head;
    const bool seen =
        r.sequence < cleared->head || (ahead < kMaxRequests && (cleared->seen >> ahead & 1) != 0);
    if (seen) continue;
    r.cleared = false;
    uncleared_ = std::min(uncleared_, r.sequence);
  }
  Clear();
  return absl::OkStatus();
}

absl::StatusOr<char*> VerbsReceiver::PlaceOf(const FrameHeader& piece) {
  const absl::StatusOr<Receive*> found = Find(static_cast<uint32_t>(piece.tag));
  if (!found.ok()) return found.status();
  const Part& part = (*found)->parts[Unpack(static_cast<uint32_t>(piece.tag)).part];
  if ((*found)->sequence != piece.sequence || piece.offset > part.room ||
      piece.bytes > part.room - piece.offset) {
    return absl::DataLossError(absl::StrCat("receive message ", (*found)->sequence, " from ",
                                            connection_.peer(), ": a piece exceeds the buffer of ",
                                            part.room, " bytes: ", FrameText(piece)));
  }
  if (piece.bytes == 0 || part.memory->host()) return part.data + piece.offset;
  if (!part.memory->carried()) {
    return absl::DataLossError(absl::StrCat(
        "receive message ", piece.sequence, " from ", connection_.peer(),
        ": a piece arrived over TCP for device memory, which this process cannot copy"));
  }
  return storing_ ? nullptr : staging_.Room(piece.bytes);
}

bool VerbsReceiver::BeginStore(const FrameHeader& piece) {
  const absl::StatusOr<Receive*> found = Find(static_cast<uint32_t>(piece.tag));
  if (!found.ok() || piece.bytes == 0) return false;
  const Part& part = (*found)->parts[Unpack(static_cast<uint32_t>(piece.tag)).part];
  if (part.memory->host()) return false;
  storing_ = piece;
  stored_ = connection_.options().now();
  staging_.Store(part.data + piece.offset, piece.bytes);
  return true;
}

void VerbsReceiver::EndStore() {
  const std::optional<absl::Status> ended = staging_.Ended();
  if (!ended) {
    const Duration waited = connection_.options().now() - stored_;
    if (waited <= connection_.options().device_wait) return;
    return connection_.Fail(absl::UnavailableError(
        absl::StrCat("copy of ", storing_->bytes, " bytes to device memory: timed out after ",
                     ToMilliseconds(connection_.options().device_wait), " ms")));
  }
  const FrameHeader piece = *std::exchange(storing_, std::nullopt);
  absl::Status status = *ended;
  if (status.ok()) status = Arrived(static_cast<uint32_t>(piece.tag), piece.bytes);
  if (!status.ok()) connection_.Fail(status);
}

absl::StatusOr<bool> VerbsReceiver::Hear(const FrameHeader& header, std::string_view) {
  switch (header.kind) {
    case FrameKind::kPiece:
      if (BeginStore(header)) return true;
      if (absl::Status status = Arrived(static_cast<uint32_t>(header.tag), header.bytes);
          !status.ok()) {
        return status;
      }
      return true;
    case FrameKind::kTooLong:
      return absl::InvalidArgumentError(absl::StrCat(
          "receive message ", header.sequence, " from ", connection_.peer(),
          ": bytes=", header.total, ": must be at most ", header.offset, ", the buffer's size"));
    case FrameKind::kClose:
      link_->closed = true;
      if (connection_.next > header.sequence) {
        return absl::UnavailableError(absl::StrCat(
            "receive from ", connection_.peer(), ": the sender has closed the connection after ",
            header.sequence, " messages, and ", connection_.next - header.sequence,
            " receives are outstanding"));
      }
      return false;
    default:
      return connection_.MalformedFrame(header);
  }
}

}  // namespace rewire::net
