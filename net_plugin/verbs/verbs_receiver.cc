#include "net_plugin/verbs/verbs_receiver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"

namespace rewire::net {

VerbsReceiver::VerbsReceiver(std::unique_ptr<Link> link, Links* links)
    : link_(std::move(link)),
      links_(links),
      connection_(static_cast<Connection&>(*link_->attachment)),
      receives_(this, &connection_.ring, &connection_.peer()),
      clear_(&connection_, &receives_),
      flush_(this),
      staging_(connection_.options().copy) {
  connection_.SetEnd(this);
  watch_ = connection_.options().watch(link_->streams[0].fd(), [this] { return Attend(); });
  if (watch_ != nullptr) connection_.SetWaker(watch_->Waker());
}

VerbsReceiver::~VerbsReceiver() {
  watch_.reset();
  connection_.SetWaker({});
  connection_.SetEnd(nullptr);
  if (connection_.failed() || receives_.unfinished() > 0) return;
  if (connection_.IsSettled()) {
    links_->ReturnReceiving(std::move(link_));
    return;
  }
  // A rail has failed, so the link ends; the frame tells the sender that no one needs the link.
  connection_.control().SendFrame(connection_.Header(FrameKind::kFinished));
  (void)connection_.control().Move();
}

absl::StatusOr<void*> VerbsReceiver::Register(void* data, size_t bytes, int type) {
  return Registration::MakeHandle(connection_.nics(), {data, bytes, type},
                                  connection_.options().run);
}

absl::StatusOr<void*> VerbsReceiver::RegisterDmabuf(void* data, size_t bytes, int type,
                                                    uint64_t offset, int fd) {
  return Registration::MakeHandle(connection_.nics(), {data, bytes, type, fd, offset},
                                  connection_.options().run);
}

absl::Status VerbsReceiver::Deregister(void* mr) {
  Registration::DeleteHandle(mr);
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

absl::StatusOr<Receive*> VerbsReceiver::Begin(int count, void* const* data, const size_t* bytes,
                                              const int* tags, void* const* mrs) {
  if (connection_.failed()) return connection_.Failure();
  if (count < 1 || count > kMaxRecvs) {
    return absl::InvalidArgumentError(
        absl::StrCat("receive: buffers=", count, ": must be 1 to ", kMaxRecvs));
  }
  if (receives_.At(connection_.next).busy) {
    if (!connection_.Poll()) return connection_.Failure();
    clear_.SendInTime();
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
  Receive& r = *receives_.Begin(connection_.next++, static_cast<uint32_t>(count));
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
  if (link_->closed) {
    connection_.Fail(absl::UnavailableError(
        absl::StrCat("receive message ", r.sequence, " from ", connection_.peer(),
                     ": the sender has closed the connection")));
    return connection_.Failure();
  }
  clear_.SendInTime();
  return &r;
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
      clear_.SendInTime();
      if (connection_.IsFallback()) clear_.SendKeys();
      return false;
    }
  }
  for (uint32_t i = 0; sizes != nullptr && i < r->count; ++i) {
    sizes[i] = static_cast<int>(r->parts[i].size());
  }
  r->busy = false;
  if (--requests_ == 0 && watch_ != nullptr) watch_->Leave(connection_.Busy());
  return true;
}

absl::Status VerbsReceiver::Arrived(uint32_t immediate, uint32_t bytes) {
  return receives_.Arrive(immediate, bytes);
}

std::string VerbsReceiver::Report() { return Encode(receives_.Report(connection_.next)); }

absl::Status VerbsReceiver::Settle(size_t rail, std::string_view report) {
  const absl::StatusOr<Cleared> cleared = DecodeCleared(report);
  if (!cleared.ok()) {
    return absl::DataLossError(absl::StrCat("fence rail ", rail, " to ", connection_.peer(), ": ",
                                            std::string(cleared.status().message())));
  }
  clear_.Settle(rail, *cleared);
  return absl::OkStatus();
}

absl::StatusOr<char*> VerbsReceiver::PlaceOf(const FrameHeader& piece) {
  const absl::StatusOr<Receive*> found = receives_.Find(static_cast<uint32_t>(piece.tag));
  if (!found.ok()) return found.status();
  const ReceivePart& part = (*found)->parts[Unpack(static_cast<uint32_t>(piece.tag)).part];
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
  const absl::StatusOr<Receive*> found = receives_.Find(static_cast<uint32_t>(piece.tag));
  if (!found.ok() || piece.bytes == 0) return false;
  const ReceivePart& part = (*found)->parts[Unpack(static_cast<uint32_t>(piece.tag)).part];
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

absl::StatusOr<bool> VerbsReceiver::TakeFrame(const FrameHeader& header, std::string_view) {
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
      return connection_.MalformedFrame(header, "the sender does not send this kind");
  }
}

}  // namespace rewire::net
