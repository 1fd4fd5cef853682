#include "net_plugin/socket/socket_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"
#include "reconfig/base/log.h"

namespace rewire::net {

SocketSender::SocketSender(std::unique_ptr<Link> link, Links* links)
    : link_(std::move(link)), links_(links), writing_(link_->streams.size()) {
  for (Message& m : messages_) m.comm = this;
}

SocketSender::~SocketSender() {
  const bool clean =
      failure_.ok() && oldest_ == next_ &&
      std::all_of(writing_.begin(), writing_.end(), [](const Writing& w) { return !w.message; });
  if (!clean) return;
  FrameHeader close;
  close.kind = FrameKind::kClose;
  close.use = link_->use;
  close.sequence = next_;
  const absl::StatusOr<size_t> sent = link_->streams[0].Write(&close, sizeof close, nullptr, 0);
  if (sent.ok() && *sent == sizeof close) links_->ReturnSending(std::move(link_));
}

absl::StatusOr<void*> SocketSender::Register(void*, size_t, int type) {
  if (type != kPtrHost) return absl::InvalidArgumentError("sockets take host memory only");
  return this;
}

absl::Status SocketSender::Deregister(void*) { return absl::OkStatus(); }

absl::StatusOr<Request*> SocketSender::Isend(const void* data, size_t bytes, int tag, void*) {
  if (!failure_.ok()) return failure_;
  Message& m = messages_[next_ % messages_.size()];
  if (m.busy) return nullptr;
  m.busy = true;
  m.data = static_cast<const char*>(data);
  m.bytes = bytes;
  m.taken = m.sent = 0;
  m.headed = false;
  m.sequence = next_++;
  m.tag = tag;
  Move();
  return &m;
}

absl::StatusOr<bool> SocketSender::Test(Request* request, int* sizes) {
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

bool SocketSender::Take(size_t stream) {
  if (oldest_ == next_) return false;
  Message& m = messages_[oldest_ % messages_.size()];
  // The receiver learns on stream 0 of a message that comes on others, too.
  if (!m.headed && stream != 0) return false;
  const size_t most = link_->streams.size() == 1 ? m.bytes : kChunkBytes;
  const size_t bytes = std::min({m.bytes - m.taken, most, size_t{kMostFrameBytes}});
  Writing& w = writing_[stream];
  w.message = &m;
  w.header = {FrameKind::kData,
              link_->use,
              m.sequence,
              m.bytes,
              m.taken,
              static_cast<uint32_t>(bytes),
              m.tag};
  w.header_sent = w.payload_sent = 0;
  m.headed = true;
  m.taken += bytes;
  if (m.taken == m.bytes) ++oldest_;
  return true;
}

void SocketSender::Move() {
  for (size_t s = 0; s < writing_.size() && failure_.ok(); ++s) {
    absl::Status status = MoveStream(s);
    if (status.ok()) continue;
    failure_ = std::move(status);
    REWIRE_WARN("net plugin: %s", std::string(failure_.message()).c_str());
  }
}

absl::Status SocketSender::MoveStream(size_t stream) {
  Writing& w = writing_[stream];
  for (;;) {
    if (w.message == nullptr && !Take(stream)) return absl::OkStatus();
    const size_t header = sizeof w.header - w.header_sent;
    const size_t payload = w.header.bytes - w.payload_sent;
    const absl::StatusOr<size_t> sent = link_->streams[stream].Write(
        reinterpret_cast<const char*>(&w.header) + w.header_sent, header,
        w.message->data + w.header.offset + w.payload_sent, payload);
    if (!sent.ok()) return sent.status();
    const size_t of_header = std::min(*sent, header);
    w.header_sent += of_header;
    w.payload_sent += *sent - of_header;
    w.message->sent += *sent - of_header;
    if (*sent < header + payload) return absl::OkStatus();
    w.message = nullptr;
  }
}

}  // namespace rewire::net
