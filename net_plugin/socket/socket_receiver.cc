#include "net_plugin/socket/socket_receiver.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/links.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

// Returns why the header is not that of a chunk in this use of the link; null: it is.
const char* FaultOf(const FrameHeader& h, uint32_t use) {
  if (h.kind != FrameKind::kData) return "its kind is not data";
  if (h.use != use) return "it belongs to another use of the link";
  if (h.bytes > kMostFrameBytes) return "it has more than 1 GiB";
  if (h.offset > h.total || h.bytes > h.total - h.offset) return "the chunk exceeds its message";
  return nullptr;
}

}  // namespace

SocketReceiver::SocketReceiver(std::unique_ptr<Link> link, Links* links)
    : link_(std::move(link)),
      links_(links),
      reading_(link_->streams.size()),
      workers_(link_->streams.size()),
      armed_(link_->streams.size()),
      kept_(link_->streams.size()),
      ended_(link_->streams.size()) {
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
  if (type != kPtrHost) {
    return absl::InvalidArgumentError(
        absl::StrCat("type=", type, ": must be ", kPtrHost, " (host memory) over sockets"));
  }
  return this;
}

absl::StatusOr<void*> SocketReceiver::RegisterDmabuf(void*, size_t, int, uint64_t, int) {
  return absl::InvalidArgumentError("sockets support host memory only");
}

absl::Status SocketReceiver::Deregister(void*) { return absl::OkStatus(); }

absl::StatusOr<Request*> SocketReceiver::Irecv(int count, void* const* data, const size_t* bytes,
                                               const int*, void* const*) {
  if (count != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("receive: buffers=", count, ": must be 1 over sockets"));
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
  m.bytes = m.claimed = m.received = 0;
  ++unfinished_;
  if (m.sequence >= end_) {
    Fail(absl::UnavailableError(absl::StrCat("receive message ", m.sequence, " from ",
                                             link_->streams[0].peer(),
                                             ": the sender has closed the connection")));
    return Failure();
  }
  return &m;
}

absl::StatusOr<bool> SocketReceiver::Test(Request* request, int* sizes) {
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
  if (const char* const why = FaultOf(h, link_->use)) {
    return absl::DataLossError(absl::StrCat("receive from ", link_->streams[0].peer(),
                                            ": malformed frame: ", FrameText(h), ": ", why,
                                            " (expected a data frame of use ", link_->use, ")"));
  }
  if (h.sequence >= next_) return nullptr;
  Message& m = messages_[h.sequence % messages_.size()];
  if (!m.busy || m.sequence != h.sequence || m.done || (m.known && m.bytes != h.total) ||
      h.bytes > h.total - m.claimed) {
    return absl::DataLossError(absl::StrCat("receive from ", link_->streams[0].peer(), ": message ",
                                            h.sequence,
                                            " arrived twice or with two sizes: ", FrameText(h)));
  }
  if (h.total > m.room) {
    return absl::InvalidArgumentError(
        absl::StrCat("receive message ", h.sequence, " from ", link_->streams[0].peer(),
                     ": bytes=", h.total, ": must be at most ", m.room, ", the buffer's size"));
  }
  m.known = true;
  m.bytes = h.total;
  m.claimed += h.bytes;
  if (h.bytes == h.total) return &m;
  // The other chunks may arrive on any stream.
  for (size_t s = 1; s < armed_.size(); ++s) {
    if (armed_[s]) continue;
    armed_[s] = true;
    Workers::Get().Arm(workers_[s], kept_[s]);
  }
  return &m;
}

void SocketReceiver::Disarm(size_t stream) {
  armed_[stream] = false;
  // No event reports bytes that were read ahead.
  kept_[stream] = reading_[stream].headed || !link_->streams[stream].Empty();
}

bool SocketReceiver::FindPlace(size_t stream) {
  MutexLock lock(&mutex_);
  Reading& r = reading_[stream];
  if (r.header.kind == FrameKind::kClose && stream == 0 && r.header.use == link_->use) {
    // Chunks on other streams may still be in flight.
    r.headed = false;
    link_->closed = true;
    end_ = r.header.sequence;
    if (next_ > end_) {
      Fail(absl::UnavailableError(absl::StrCat("receive from ", link_->streams[0].peer(),
                                               ": the sender has closed the connection after ",
                                               end_, " messages, and ", next_ - end_,
                                               " receives are outstanding")));
    }
    return false;
  }
  const absl::StatusOr<Message*> place = PlaceOf(r.header);
  if (!place.ok()) Fail(place.status());
  r.message = place.ok() ? *place : nullptr;
  if (r.message == nullptr) Disarm(stream);
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
  Disarm(stream);
  return false;
}

void SocketReceiver::End(size_t stream, bool in_frame, const absl::Status& why) {
  MutexLock lock(&mutex_);
  const bool closed = absl::IsOutOfRange(why);
  ended_[stream] = true;
  Disarm(stream);
  if (closed && !in_frame) {
    // The other streams' data may still arrive, unless stream 0 ended without naming their message.
    const bool all = std::find(ended_.begin(), ended_.end(), false) == ended_.end();
    const bool unnamed =
        ended_[0] && std::any_of(messages_.begin(), messages_.end(),
                                 [](const Message& m) { return m.busy && !m.done && !m.known; });
    if (unfinished_ == 0 || (!all && !unnamed)) return;
  }
  Fail(closed ? absl::UnavailableError(why.message()) : why);
}

void SocketReceiver::Drive(size_t stream) {
  const After after = MoveStream(stream, Workers::kTurnBytes);
  if (after != After::kIdle) Workers::Get().Arm(workers_[stream], after == After::kMore);
}

SocketReceiver::After SocketReceiver::MoveStream(size_t stream, size_t most) {
  Stream& from = link_->streams[stream];
  Reading& r = reading_[stream];
  // Frames after a close belong to the next use.
  if (stream == 0 && link_->closed) return After::kIdle;
  for (size_t moved = 0; moved < most;) {
    if (!r.headed) {
      const absl::StatusOr<bool> headed = from.ReadHeader(&r.header);
      if (!headed.ok()) {
        End(stream, !from.Empty(), headed.status());
        return After::kIdle;
      }
      if (!*headed) return After::kBlocked;
      r = {true, r.header, nullptr, 0};
    }
    if (r.message == nullptr && !FindPlace(stream)) return After::kIdle;
    size_t got = 0;
    const size_t wanted = r.header.bytes - r.payload;
    if (wanted > 0) {
      const absl::StatusOr<size_t> read =
          from.ReadPayload(r.message->data + r.header.offset + r.payload, wanted);
      if (!read.ok()) {
        End(stream, true, read.status());
        return After::kIdle;
      }
      if (*read == 0) return After::kBlocked;
      got = *read;
    }
    moved += got;
    const Message& message = *r.message;
    if (!Count(stream, got)) return After::kIdle;
    if (got < wanted) return After::kBlocked;
    // The answer goes first: reading on would take this frame from the kernel (stream.h).
    if (stream == 0 && message.done.load(std::memory_order_relaxed)) return After::kMore;
  }
  return After::kMore;
}

SocketListener::~SocketListener() { links_->Unlisten(id_); }

absl::StatusOr<std::unique_ptr<Receiver>> SocketListener::Accept() {
  absl::StatusOr<std::unique_ptr<Link>> link = links_->Accept(id_);
  if (!link.ok()) return link.status();
  if (*link == nullptr) return nullptr;
  return std::make_unique<SocketReceiver>(*std::move(link), links_);
}

}  // namespace rewire::net
