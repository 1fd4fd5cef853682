#include "net_plugin/socket/socket_receiver.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"
#include "reconfig/base/log.h"

namespace rewire::net {

SocketReceiver::SocketReceiver(std::unique_ptr<Link> link, Links* links)
    : link_(std::move(link)),
      links_(links),
      reading_(link_->streams.size()),
      workers_(link_->streams.size()),
      armed_(link_->streams.size()) {
  for (Message& m : messages_) m.comm = this;
  for (size_t s = 1; s < workers_.size(); ++s) {
    workers_[s] = Workers::Get().Add(link_->streams[s].fd(), EPOLLIN, this, s);
  }
}

SocketReceiver::~SocketReceiver() {
  for (size_t s = 1; s < workers_.size(); ++s) Workers::Get().Remove(workers_[s]);
  MutexLock lock(&mutex_);
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
  if (count != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sockets receive 1 buffer at a time, not ", count));
  }
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return Failure();
  Message& m = messages_[next_ % messages_.size()];
  if (m.busy) return nullptr;
  m.busy = true;
  m.data = static_cast<char*>(data[0]);
  m.room = bytes[0];
  m.sequence = next_++;
  m.known = false;
  m.done = false;
  m.bytes = m.received = 0;
  ++unfinished_;
  return &m;
}

absl::StatusOr<bool> SocketReceiver::Test(Request* request, int* sizes) {
  auto* const m = static_cast<Message*>(request);
  // Asked again and again: without the lock.
  if (!m->done.load(std::memory_order_acquire)) {
    if (!failed_.load(std::memory_order_relaxed)) MoveStream(0);
    if (!m->done.load(std::memory_order_acquire)) {
      if (!failed_.load(std::memory_order_relaxed)) return false;
      MutexLock lock(&mutex_);
      return Failure();
    }
  }
  if (sizes != nullptr) *sizes = static_cast<int>(m->bytes);
  MutexLock lock(&mutex_);
  m->busy = false;
  return true;
}

void SocketReceiver::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  failed_ = true;
  REWIRE_WARN("net plugin: %s", std::string(status.message()).c_str());
}

absl::StatusOr<SocketReceiver::Message*> SocketReceiver::PlaceOf(const FrameHeader& h) {
  if (h.kind == FrameKind::kClose) {
    return absl::UnavailableError("the sender has closed with receives outstanding");
  }
  if (h.kind != FrameKind::kData || h.use != link_->use || h.bytes > kMostFrameBytes ||
      h.offset > h.total || h.bytes > h.total - h.offset) {
    return absl::DataLossError("a frame that is none came over a link");
  }
  if (h.sequence >= next_) return nullptr;
  Message& m = messages_[h.sequence % messages_.size()];
  if (!m.busy || m.sequence != h.sequence || m.done || (m.known && m.bytes != h.total) ||
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
  if (h.bytes == h.total) return &m;
  // The rest comes on any stream.
  for (size_t s = 1; s < armed_.size(); ++s) {
    if (armed_[s]) continue;
    armed_[s] = true;
    Workers::Get().Arm(workers_[s]);
  }
  return &m;
}

bool SocketReceiver::FindPlace(size_t stream) {
  MutexLock lock(&mutex_);
  Reading& r = reading_[stream];
  const absl::StatusOr<Message*> place = PlaceOf(r.header);
  if (!place.ok()) Fail(place.status());
  r.message = place.ok() ? *place : nullptr;
  if (r.message == nullptr) armed_[stream] = false;
  return r.message != nullptr;
}

bool SocketReceiver::Count(size_t stream, size_t bytes) {
  MutexLock lock(&mutex_);
  Reading& r = reading_[stream];
  Message& m = *r.message;
  r.payload += bytes;
  m.received += bytes;
  if (r.payload < r.header.bytes) return true;
  r.headed = false;
  r.message = nullptr;
  if (m.received == m.bytes) {
    --unfinished_;
    m.done.store(true, std::memory_order_release);
  }
  if (unfinished_ > 0) return true;
  armed_[stream] = false;
  return false;
}

void SocketReceiver::Drive(size_t stream) {
  if (MoveStream(stream)) Workers::Get().Arm(workers_[stream]);
}

bool SocketReceiver::MoveStream(size_t stream) {
  Stream& from = link_->streams[stream];
  Reading& r = reading_[stream];
  for (;;) {
    absl::StatusOr<size_t> got = size_t{0};
    if (!r.headed) {
      const absl::StatusOr<bool> headed = from.ReadHeader(&r.header);
      if (headed.ok() && !*headed) return true;
      if (headed.ok()) {
        r = {true, r.header, nullptr, 0};
      } else {
        got = headed.status();
      }
    }
    if (got.ok()) {
      if (r.message == nullptr && !FindPlace(stream)) return false;
      if (r.payload < r.header.bytes) {
        got = from.ReadPayload(r.message->data + r.header.offset + r.payload,
                               r.header.bytes - r.payload);
        if (got.ok() && *got == 0) return true;
      }
    }
    if (!got.ok()) {
      MutexLock lock(&mutex_);
      Fail(got.status());
      return false;
    }
    if (!Count(stream, *got)) return false;
  }
}

}  // namespace rewire::net
