// The sending side of a stream connection; see tcp_outbound.h.
#include "reconfig/state/stream/tcp_outbound.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/socket.h"

namespace rewire::state {
namespace {

constexpr Duration kRetryAfter = milliseconds(10);

bool ParseAddress(const std::string& text, sockaddr_in* out) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  const int port = atoi(text.c_str() + colon + 1);
  *out = {};
  out->sin_family = AF_INET;
  out->sin_port = htons(static_cast<uint16_t>(port));
  return port > 0 && port < 65536 &&
         inet_pton(AF_INET, text.substr(0, colon).c_str(), &out->sin_addr) == 1;
}

}  // namespace

TcpOutbound::TcpOutbound(const StreamKey& key, const WorldMember& self, WorldMember to,
                         Duration connect, Duration stall, Time now)
    : key_(key),
      self_(self),
      to_(std::move(to)),
      stall_(stall),
      connect_by_(now + connect),
      retry_at_(now),
      deadline_(now + stall) {}

std::string TcpOutbound::StreamText(const std::string& why) const {
  return absl::StrCat("stream to member ", to_.member, " at ", to_.data_address, ": ", why);
}

TcpOutbound::~TcpOutbound() { Fail(absl::CancelledError("the stream was closed")); }

void TcpOutbound::Add(OutFragment fragment, std::function<void(absl::Status)> done, Time now) {
  if (state_ == State::kFailed) return done(failure_);
  fragment.header.epoch = key_.epoch;
  if (waiting_.empty()) deadline_ = now + stall_;
  std::string header = EncodeHeader(fragment.header);
  waiting_.push_back({fragment, std::move(header), std::move(done)});
  if (state_ == State::kOpen) Write(now);
}

void TcpOutbound::Connect(Time now) {
  sockaddr_in address;
  if (!ParseAddress(to_.data_address, &address)) {
    return Fail(
        absl::InvalidArgumentError(absl::StrCat("stream to member ", to_.member, ": data address='",
                                                to_.data_address, "': must be IPV4:PORT")));
  }
  fd_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_.valid()) return Retry(now, strerror(errno));
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  state_ = State::kConnecting;
  attempt_until_ = std::min(connect_by_, now + kConnectAttempt);
  if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS) {
    Retry(now, strerror(errno));
  }
}

void TcpOutbound::Retry(Time now, const std::string& why) {
  fd_.reset();
  in_.clear();
  handshake_left_.clear();
  refusal_ = why;
  if (now >= connect_by_) {
    return Fail(absl::UnavailableError(StreamText("not established in time: " + why)));
  }
  state_ = State::kIdle;
  retry_at_ = now + kRetryAfter;
}

bool TcpOutbound::WantsWrite() const {
  return state_ == State::kConnecting || !handshake_left_.empty() ||
         (state_ == State::kOpen && sent_ < waiting_.size());
}

void TcpOutbound::OnReady(Time now, int events) {
  if (state_ == State::kConnecting && (events & (POLLOUT | POLLERR | POLLHUP)) != 0) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Retry(now, strerror(error));
    state_ = State::kHello;
    deadline_ = now + stall_;
    const StreamHello hello = {key_.purpose,      key_.epoch,      self_.member, to_.member,
                               self_.incarnation, to_.incarnation, Nonce{}};
    handshake_.emplace(key_.secret, hello);
    handshake_left_ = handshake_->hello();
  }
  if (fd_.valid() && (events & (POLLIN | POLLERR | POLLHUP)) != 0) Read(now);
  if (fd_.valid()) Write(now);
}

void TcpOutbound::Write(Time now) {
  while (fd_.valid() && WantsWrite() && state_ != State::kConnecting) {
    iovec parts[2];
    int count = 0;
    if (!handshake_left_.empty()) {
      parts[count++] = {handshake_left_.data(), handshake_left_.size()};
    } else {
      Waiting& w = waiting_[sent_];
      if (sent_bytes_ < kHeaderSize) {
        parts[count++] = {w.header.data() + sent_bytes_, kHeaderSize - sent_bytes_};
      }
      const size_t body = sent_bytes_ > kHeaderSize ? sent_bytes_ - kHeaderSize : 0;
      parts[count++] = {const_cast<char*>(w.fragment.bytes.data()) + body,
                        w.fragment.bytes.size() - body};
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return Read(now);  // Read() finds the last answer or the end of the connection
    deadline_ = now + stall_;
    if (!handshake_left_.empty()) {
      handshake_left_.erase(0, static_cast<size_t>(n));
      continue;
    }
    sent_bytes_ += static_cast<size_t>(n);
    if (sent_bytes_ == kHeaderSize + waiting_[sent_].fragment.bytes.size()) {
      ++sent_;
      sent_bytes_ = 0;
    }
  }
}

void TcpOutbound::Read(Time now) {
  for (;;) {
    char bytes[512];
    const ssize_t n = recv(fd_.get(), bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      const std::string why = n == 0 ? "the member closed the connection" : strerror(errno);
      if (state_ != State::kOpen) return Retry(now, why);
      return Fail(absl::UnavailableError(StreamText(why)));
    }
    in_.append(bytes, static_cast<size_t>(n));
    deadline_ = now + stall_;
    while (fd_.valid() && TakeAnswer(now)) {
    }
    if (!fd_.valid()) return;
  }
}

bool TcpOutbound::TakeAnswer(Time now) {
  const bool challenge = state_ == State::kHello;
  const size_t size = challenge ? kStreamChallengeSize : kReplySize;
  if (in_.size() < size) return false;
  const std::string bytes = in_.substr(0, size);
  in_.erase(0, size);
  if (challenge) {
    OnChallenge(now, bytes);
  } else if (const auto reply = DecodeReply(bytes); reply.ok()) {
    OnReply(*reply);
  } else {
    Fail(absl::UnavailableError(StreamText("malformed reply")));
  }
  return true;
}

void TcpOutbound::OnChallenge(Time now, std::string_view challenge) {
  absl::StatusOr<std::string> proof = handshake_->ProofFor(challenge);
  if (absl::IsUnavailable(proof.status())) {
    return Retry(now, "the member has not opened this stream");
  }
  if (!proof.ok()) return Retry(now, "wrong proof: the member does not have the epoch's key");
  state_ = State::kProof;
  handshake_left_ = *std::move(proof);
}

void TcpOutbound::OnReply(Reply reply) {
  if (state_ == State::kProof && reply == Reply::kAccepted) {
    state_ = State::kOpen;
    return;
  }
  if (state_ == State::kOpen && reply == Reply::kPlaced && sent_ > 0) {
    Waiting placed = std::move(waiting_.front());
    waiting_.pop_front();
    --sent_;
    placed.done(absl::OkStatus());
    return;
  }
  Fail(absl::DataLossError(StreamText(
      reply == Reply::kRejected ? "the member rejected a fragment (the reason is in its log)"
                                : "a reply arrived out of order")));
}

void TcpOutbound::OnTick(Time now) {
  if (state_ == State::kIdle && now >= retry_at_ && !waiting_.empty()) Connect(now);
  if (state_ == State::kConnecting && now >= attempt_until_) {
    // The answer may have arrived while this thread did not run.
    if (WaitReady(fd_.get(), POLLOUT, now)) {
      OnReady(now, POLLOUT);
    } else {
      Retry(now, refusal_.empty() ? "no answer" : refusal_);
    }
  }
  const auto stalled = [&] {
    const bool under_way = state_ == State::kHello || state_ == State::kProof ||
                           (state_ == State::kOpen && !waiting_.empty());
    return under_way && now >= deadline_;
  };
  if (!stalled()) return;
  // This process itself may have been stopped: pending reads and writes count as progress.
  Read(now);
  if (fd_.valid()) Write(now);
  if (stalled()) {
    Fail(absl::DeadlineExceededError(
        StreamText(absl::StrCat("no progress for ", ToMilliseconds(stall_), " ms"))));
  }
}

Time TcpOutbound::NextTick() const {
  if (state_ == State::kIdle && !waiting_.empty()) return retry_at_;
  if (state_ == State::kConnecting) return attempt_until_;
  if (state_ == State::kFailed || waiting_.empty()) return Time::max();
  return deadline_;
}

void TcpOutbound::Fail(const absl::Status& status) {
  fd_.reset();
  if (state_ != State::kFailed) failure_ = status;
  state_ = State::kFailed;
  std::deque<Waiting> all;
  all.swap(waiting_);
  sent_ = sent_bytes_ = 0;
  for (Waiting& w : all) w.done(status);
}

}  // namespace rewire::state
