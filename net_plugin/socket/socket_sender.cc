#include "net_plugin/socket/socket_sender.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"
#include "reconfig/base/log.h"

namespace rewire::net {

SocketSender::SocketSender(std::unique_ptr<Link> link, Links* links, Splitting splitting)
    : link_(std::move(link)),
      links_(links),
      splitting_(splitting),
      writing_(link_->streams.size()),
      workers_(link_->streams.size()),
      armed_(link_->streams.size()) {
  for (Message& m : messages_) m.comm = this;
  for (size_t s = 1; s < workers_.size(); ++s) {
    workers_[s] = Workers::Get().Add(link_->streams[s].fd(), EPOLLOUT, this, s);
  }
}

SocketSender::~SocketSender() {
  for (size_t s = 1; s < workers_.size(); ++s) Workers::Get().Remove(workers_[s]);
  MutexLock lock(&mutex_);
  TakeBack();
  const bool clean =
      failure_.ok() && oldest_ == next_ &&
      std::all_of(writing_.begin(), writing_.end(), [](const Writing& w) { return !w.message; }) &&
      std::all_of(link_->streams.begin(), link_->streams.end(),
                  [](Stream& s) { return s.loans().empty(); });
  if (!clean) return;
  FrameHeader close;
  close.kind = FrameKind::kClose;
  close.use = link_->use;
  close.sequence = next_;
  const absl::StatusOr<size_t> sent = link_->streams[0].Write(&close, sizeof close, nullptr, 0);
  if (sent.ok() && *sent == sizeof close) links_->ReturnSending(std::move(link_));
}

absl::StatusOr<void*> SocketSender::Register(void*, size_t, int type) {
  if (type != kPtrHost) {
    return absl::InvalidArgumentError(
        absl::StrCat("type=", type, ": must be ", kPtrHost, " (host memory) over sockets"));
  }
  return this;
}

absl::StatusOr<void*> SocketSender::RegisterDmabuf(void*, size_t, int, uint64_t, int) {
  return absl::InvalidArgumentError("sockets support host memory only");
}

absl::Status SocketSender::Deregister(void*) { return absl::OkStatus(); }

absl::StatusOr<Request*> SocketSender::Isend(const void* data, size_t bytes, int tag, void*) {
  Message* message = nullptr;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return Failure();
    message = &messages_[next_ % messages_.size()];
    if (message->busy) return nullptr;
    message->busy = true;
    message->data = static_cast<const char*>(data);
    message->bytes = bytes;
    message->taken = message->sent = 0;
    message->headed = false;
    message->done = false;
    message->sequence = next_++;
    message->tag = tag;
    message->split = bytes >= 2 * kLeastChunkBytes && link_->streams.size() > 1;
    if (Measured(*message)) {
      message->split = choice_.Next(bytes);
      message->begun = Now();
    }
  }
  MoveStream(0);
  return message;
}

absl::StatusOr<bool> SocketSender::Test(Request* request, int* sizes) {
  auto* const m = static_cast<Message*>(request);
  // NCCL polls often, so this check takes no lock.
  if (!m->done.load(std::memory_order_acquire)) {
    if (!failed_.load(std::memory_order_relaxed)) MoveStream(0);
    if (!m->done.load(std::memory_order_acquire)) {
      if (!failed_.load(std::memory_order_relaxed)) return false;
      MutexLock lock(&mutex_);
      return Failure();
    }
  }
  if (sizes != nullptr) *sizes = static_cast<int>(m->bytes);
  m->busy = false;
  return true;
}

bool SocketSender::Take(size_t stream) {
  if (!failure_.ok() || oldest_ == next_) return false;
  Message& m = messages_[oldest_ % messages_.size()];
  // The first chunk goes on stream 0, which tells the receiver about a message on several streams.
  if (!m.headed && stream != 0) return false;
  const size_t streams = link_->streams.size();
  const size_t share = (m.bytes + streams - 1) / streams;
  const size_t most = m.split ? std::clamp(share, kLeastChunkBytes, kMostChunkBytes) : m.bytes;
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
  if (m.taken == m.bytes) {
    ++oldest_;
    return true;
  }
  for (size_t s = 1; s < armed_.size(); ++s) {
    if (armed_[s]) continue;
    armed_[s] = true;
    Workers::Get().Arm(workers_[s]);
  }
  return true;
}

void SocketSender::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  failed_ = true;
  REWIRE_WARN("net plugin: %s", std::string(status.message()).c_str());
}

void SocketSender::Drive(size_t stream) {
  if (MoveStream(stream, Workers::kTurnBytes)) Workers::Get().Arm(workers_[stream]);
}

void SocketSender::TakeBack() {
  for (Stream& s : link_->streams) {
    for (void* owner : s.loans().TakeBack()) {
      auto* const m = static_cast<Message*>(owner);
      --m->lent;
      FinishIfThrough(m);
    }
  }
}

bool SocketSender::Measured(const Message& m) const {
  return splitting_ == Splitting::kMeasured && link_->streams.size() > 1 &&
         m.bytes >= 2 * kLeastChunkBytes;
}

void SocketSender::FinishIfThrough(Message* m) {
  if (m->sent < m->bytes || m->taken < m->bytes || m->lent > 0) return;
  if (Measured(*m)) {
    const Time now = Now();
    choice_.Add(m->bytes, m->split, now - std::max(m->begun, std::exchange(last_done_, now)));
  }
  m->done.store(true, std::memory_order_release);
}

bool SocketSender::MoveStream(size_t stream, size_t most) {
  Writing& w = writing_[stream];
  Stream& to = link_->streams[stream];
  for (size_t moved = 0; moved < most;) {
    if (w.message == nullptr) {
      MutexLock lock(&mutex_);
      if (!Take(stream)) {
        TakeBack();
        armed_[stream] = false;
        return false;
      }
    }
    const size_t header = sizeof w.header - w.header_sent;
    const size_t payload = w.header.bytes - w.payload_sent;
    const char* const from = reinterpret_cast<const char*>(&w.header) + w.header_sent;
    const char* const data = w.message->data + w.header.offset + w.payload_sent;
    const bool lend = payload >= Loans::kLeast && to.loans().on();
    bool lent = false;
    if (lend) {  // the kernel may report completion before send() returns
      MutexLock lock(&mutex_);
      to.loans().Lend(w.message);
      ++w.message->lent;
    }
    const absl::StatusOr<size_t> sent =
        lend ? to.Lend(from, header, data, payload, &lent) : to.Write(from, header, data, payload);
    MutexLock lock(&mutex_);
    if (lend && !lent) {
      to.loans().Undo();
      --w.message->lent;
    }
    if (!sent.ok()) {
      Fail(sent.status());
      return false;
    }
    moved += *sent;
    const size_t of_header = std::min(*sent, header);
    w.header_sent += of_header;
    w.payload_sent += *sent - of_header;
    w.message->sent += *sent - of_header;
    if (*sent < header + payload) {
      TakeBack();
      return true;
    }
    FinishIfThrough(std::exchange(w.message, nullptr));
  }
  return true;
}

}  // namespace rewire::net
