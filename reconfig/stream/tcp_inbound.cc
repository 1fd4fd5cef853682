// The receiving side of a stream connection; see tcp_inbound.h.
#include "reconfig/stream/tcp_inbound.h"

#include <sys/socket.h>

#include <cerrno>

#include "reconfig/base/bytes.h"
#include "reconfig/base/log.h"
#include "reconfig/stream/content.h"

namespace rewire {
namespace {

// How much one connection may read before the others get a turn.
constexpr size_t kTurnBytes = 4 << 20;

}  // namespace

void TcpInbound::Expect(State state, size_t bytes) {
  state_ = state;
  if (in_.size() < bytes) in_.resize(bytes);
  want_ = bytes;
  have_ = 0;
}

void TcpInbound::Garbage() {
  ++streams_->dropped_garbage;
  Close();
}

void TcpInbound::OnReadable(Time now) {
  for (size_t turn = 0; fd_.valid() && turn < kTurnBytes && state_ != State::kEnd;) {
    const ssize_t n = recv(fd_.get(), in_.data() + have_, want_ - have_, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      // A stranger that goes in the middle of its greeting is not worth a count; a sender that dies
      // is noticed by its own members.
      Close();
      return;
    }
    turn += static_cast<size_t>(n);
    have_ += static_cast<size_t>(n);
    deadline_ = now + stall_;
    if (have_ == want_) Filled(now);
  }
}

void TcpInbound::Filled(Time now) {
  deadline_ = now + stall_;
  switch (state_) {
    case State::kGreeting:
      return OnGreeting();
    case State::kHeader:
      return OnHeader();
    case State::kBody:
      return OnBody();
    case State::kNameLength: {
      const auto bytes = ByteReader({in_.data(), want_}).Get<uint32_t>();
      if (bytes == 0 || bytes > kMaxNameBytes) return Garbage();
      return Expect(State::kName, bytes);
    }
    case State::kName:
      return OnName();
    case State::kEnd:
      return;
  }
}

void TcpInbound::OnGreeting() {
  const auto greeting = DecodeGreeting({in_.data(), want_});
  if (!greeting) return Garbage();
  greeting_ = *greeting;
  const bool names = greeting_.key.purpose == Purpose::kNames && streams_->lookup != nullptr &&
                     greeting_.key.secret == streams_->names_secret;
  if (!names && !streams_->sinks.contains(greeting_.key)) {
    ++streams_->dropped_stale;
    state_ = State::kEnd;
    Answer(EncodeReply(Reply::kUnknown));
    return;
  }
  Answer(EncodeReply(Reply::kAccepted));
  if (names) {
    Expect(State::kNameLength, 4);
  } else {
    Expect(State::kHeader, kHeaderSize);
  }
}

void TcpInbound::OnHeader() {
  const auto header = DecodeHeader({in_.data(), want_});
  if (!header) return Garbage();
  if (header->epoch != greeting_.key.epoch || header->secret != greeting_.key.secret) {
    ++streams_->dropped_stale;
    return Close();
  }
  header_ = *header;
  Expect(State::kBody, header_.bytes);
}

void TcpInbound::OnBody() {
  const auto sink = streams_->sinks.find(greeting_.key);
  if (sink == streams_->sinks.end()) {
    ++streams_->dropped_stale;
    return Close();
  }
  absl::Status taken;
  if (HashContent(in_.data(), want_, header_.offset) != header_.content) {
    ++streams_->corrupted;
    sink->second->Corrupted(greeting_.sender, header_);
    taken = absl::DataLossError("content does not match its hash");
  } else {
    taken = sink->second->Take(greeting_.sender, header_, {in_.data(), want_});
  }
  if (!taken.ok()) {
    REWIRE_WARN("stream: a fragment of member %u was rejected: %s", greeting_.sender,
                std::string(taken.message()).c_str());
    state_ = State::kEnd;
    return Answer(EncodeReply(Reply::kRejected));
  }
  streams_->bytes_in += header_.bytes;
  Expect(State::kHeader, kHeaderSize);
  Answer(EncodeReply(Reply::kPlaced));
}

void TcpInbound::OnName() {
  const std::optional<std::string> value = streams_->lookup({in_.data(), want_});
  ByteWriter out;
  out.PutString(value.value_or(""));
  state_ = State::kEnd;
  Answer(out.bytes());
}

void TcpInbound::Answer(std::string_view bytes) {
  out_.append(bytes);
  OnWritable();
}

void TcpInbound::OnWritable() {
  while (fd_.valid() && !out_.empty()) {
    const ssize_t n = send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return Close();
    out_.erase(0, static_cast<size_t>(n));
  }
  if (state_ == State::kEnd) Close();
}

void TcpInbound::OnTick(Time now) {
  const bool idle = state_ == State::kHeader && have_ == 0 && out_.empty();
  if (!idle && now >= deadline_) Close();
}

}  // namespace rewire
