#include "net_plugin/socket/socket_receiver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"
#include "reconfig/base/log.h"

namespace rewire::net {

SocketReceiver::SocketReceiver(std::unique_ptr<Link> link, Links* links)
    : link_(std::move(link)), links_(links), reading_(link_->streams.size()) {
  for (Message& m : messages_) m.comm = this;
}

SocketReceiver::~SocketReceiver() {
  const bool clean =
      failure_.ok() && unfinished_ == 0 &&
      std::all_of(reading_.begin(), reading_.end(), [](const Reading& r) { return !r.headed; });
  if (clean) links_->ReturnReceiving(std::move(link_));
}

absl::StatusOr<void*> SocketReceiver::Register(void*, size_t, int type) {
  if (type != kPtrHost) return absl::InvalidArgumentError("sockets take host memory only");
  return this;
}

absl::Status SocketReceiver::Deregister(void*) { return absl::OkStatus(); }

absl::StatusOr<Request*> SocketReceiver::Irecv(int count, void* const* data, const size_t* bytes,
                                               const int*, void* const*) {
  if (!failure_.ok()) return failure_;
  if (count != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sockets receive 1 buffer at a time, not ", count));
  }
  Message& m = messages_[next_ % messages_.size()];
  if (m.busy) return nullptr;
  m.busy = true;
  m.data = static_cast<char*>(data[0]);
  m.room = bytes[0];
  m.sequence = next_++;
  m.known = false;
  m.bytes = m.received = 0;
  ++unfinished_;
  return &m;
}

absl::StatusOr<bool> SocketReceiver::Test(Request* request, int* sizes) {
  auto* const m = static_cast<Message*>(request);
  if (!m->done()) Move();
  if (!m->done()) {
    if (!failure_.ok()) return failure_;
    return false;
  }
  if (sizes != nullptr) *sizes = static_cast<int>(m->bytes);
  m->busy = false;
  return true;
}

void SocketReceiver::Move() {
  if (!failure_.ok()) return;
  absl::Status status = MoveStream(0);
  // Others carry only what stream 0 has announced.
  for (size_t s = 1; s < reading_.size() && status.ok(); ++s) status = MoveStream(s);
  if (status.ok()) return;
  failure_ = std::move(status);
  REWIRE_WARN("net plugin: %s", std::string(failure_.message()).c_str());
}

absl::StatusOr<SocketReceiver::Message*> SocketReceiver::PlaceOf(const FrameHeader& h) {
  if (h.kind != FrameKind::kData || h.use != link_->use || h.bytes > kMostFrameBytes ||
      h.offset > h.total || h.bytes > h.total - h.offset) {
    return absl::DataLossError("a frame that is none came over a link");
  }
  if (h.sequence >= next_) return nullptr;
  Message& m = messages_[h.sequence % messages_.size()];
  if (!m.busy || m.sequence != h.sequence || m.done() || (m.known && m.bytes != h.total) ||
      h.bytes > h.total - m.received) {
    return absl::DataLossError(
        absl::StrCat("message ", h.sequence, " came twice or with two sizes"));
  }
  if (h.total > m.room) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", h.total, " bytes came for a buffer of ", m.room));
  }
  m.known = true;
  m.bytes = h.total;
  return &m;
}

absl::Status SocketReceiver::MoveStream(size_t stream) {
  Stream& from = link_->streams[stream];
  Reading& r = reading_[stream];
  while (unfinished_ > 0) {
    if (!r.headed) {
      const absl::StatusOr<bool> headed = from.ReadHeader(&r.header);
      if (!headed.ok()) return headed.status();
      if (!*headed) return absl::OkStatus();
      r = {true, r.header, nullptr, 0};
      if (r.header.kind == FrameKind::kClose) {
        return absl::UnavailableError("the sender has closed with receives outstanding");
      }
    }
    if (r.message == nullptr) {
      const absl::StatusOr<Message*> place = PlaceOf(r.header);
      if (!place.ok()) return place.status();
      if (*place == nullptr) return absl::OkStatus();
      r.message = *place;
    }
    Message& m = *r.message;
    if (r.payload < r.header.bytes) {
      const absl::StatusOr<size_t> got =
          from.ReadPayload(m.data + r.header.offset + r.payload, r.header.bytes - r.payload);
      if (!got.ok()) return got.status();
      if (*got == 0) return absl::OkStatus();
      r.payload += *got;
      m.received += *got;
    }
    if (r.payload < r.header.bytes) continue;
    r.headed = false;
    if (m.done()) --unfinished_;
  }
  return absl::OkStatus();
}

}  // namespace rewire::net
