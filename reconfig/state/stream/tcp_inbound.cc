// The receiving side of a stream connection; see tcp_inbound.h.
#include "reconfig/state/stream/tcp_inbound.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "reconfig/base/bytes.h"
#include "reconfig/base/log.h"
#include "reconfig/state/stream/content.h"

namespace rewire::state {
namespace {

// One turn reads at most this much from a connection before other connections get a turn.
constexpr size_t kTurnBytes = 4 << 20;
// Limit of a hello since the connection and of a proof since the challenge, whatever bytes arrive.
constexpr Duration kHandshake = seconds(5);

std::string_view ReasonOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

}  // namespace

TcpInbound::TcpInbound(UniqueFd fd, uint64_t source, StreamTable* streams, Duration stall, Time now)
    : fd_(std::move(fd)),
      source_(source),
      streams_(streams),
      stall_(stall),
      since_(now),
      deadline_(now + kHandshake) {}

TcpInbound::Stage TcpInbound::stage() const {
  if (proved_) return Stage::kMember;
  return state_ == State::kProof ? Stage::kChallenged : Stage::kNothing;
}

PendingConnection TcpInbound::pending() const {
  return {state_ == State::kProof ? hello_.sender : source_, since_};
}

void TcpInbound::Expect(State state, size_t bytes) {
  state_ = state;
  if (in_.size() < bytes) in_.resize(bytes);
  want_ = bytes;
  have_ = 0;
}

void TcpInbound::Garbage(std::string_view why) {
  REWIRE_DEBUG("stream connection closed: %s", std::string(why).c_str());
  ++streams_->dropped_garbage;
  Close();
}

void TcpInbound::OnReadable(Time now) {
  for (size_t turn = 0; fd_.valid() && turn < kTurnBytes && state_ != State::kEnd;) {
    const ssize_t n = recv(fd_.get(), in_.data() + have_, want_ - have_, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      // Only the end of an unauthenticated connection counts as refused.
      if (stage() != Stage::kMember) ++streams_->refused;
      Close();
      return;
    }
    turn += static_cast<size_t>(n);
    have_ += static_cast<size_t>(n);
    if (stage() == Stage::kMember) deadline_ = now + stall_;
    if (have_ == want_) Filled(now);
  }
}

void TcpInbound::Filled(Time now) {
  deadline_ = now + (state_ == State::kHello ? kHandshake : stall_);
  switch (state_) {
    case State::kHello:
      return OnHello();
    case State::kProof:
      return OnProof();
    case State::kHeader:
      return OnHeader();
    case State::kBody:
      return OnBody();
    case State::kNameLength: {
      const auto bytes = ByteReader({in_.data(), want_}).Get<uint32_t>();
      if (bytes == 0 || bytes > kMaxNameBytes) {
        return Garbage("decode question: the name must have 1 to 256 bytes");
      }
      return Expect(State::kName, bytes);
    }
    case State::kName:
      return OnName();
    case State::kEnd:
      return;
  }
}

void TcpInbound::OnHello() {
  const std::string_view bytes(in_.data(), want_);
  const auto hello = DecodeStreamHello(bytes);
  if (!hello.ok()) return Garbage(ReasonOf(hello.status()));
  hello_ = *hello;
  const Key* key = nullptr;
  bool may = hello_.receiver == streams_->self && hello_.sender != streams_->self &&
             hello_.receiver_incarnation == streams_->incarnation;
  if (hello_.purpose == Purpose::kNames) {
    if (streams_->lookup != nullptr && hello_.epoch == 0) key = &streams_->names_key;
  } else if (const auto at = streams_->open.find({hello_.purpose, hello_.epoch});
             at != streams_->open.end()) {
    const auto is_sender = [this](const WorldMember& m) {
      return m.member == hello_.sender && m.incarnation == hello_.sender_incarnation;
    };
    const std::vector<WorldMember>& senders = at->second.senders;
    may = may && std::any_of(senders.begin(), senders.end(), is_sender);
    key = &at->second.key;
  }
  if (key == nullptr || !may) {
    // A hello for a stream that is not open yet is normal: the sender retries.
    ++(may ? streams_->dropped_stale : streams_->refused);
    state_ = State::kEnd;
    return Answer(EncodeStreamChallenge({}));
  }
  const Key connection = ConnectionKey(*key, hello_);
  StreamChallenge challenge;
  challenge.known = true;
  challenge.nonce = RandomNonce();
  challenge.proof = ProofOf(Side::kListening, connection, bytes, challenge.nonce);
  expected_ = ProofOf(Side::kConnecting, connection, bytes, challenge.nonce);
  Expect(State::kProof, kStreamProofSize);
  Answer(EncodeStreamChallenge(challenge));
}

void TcpInbound::OnProof() {
  const auto proof = DecodeStreamProof({in_.data(), want_});
  if (!proof.ok()) return Garbage(ReasonOf(proof.status()));
  if (!SameCode(expected_, ViewOf(*proof))) return Garbage("the connecting side's proof is wrong");
  proved_ = true;
  if (hello_.purpose == Purpose::kNames) {
    Expect(State::kNameLength, 4);
  } else {
    Expect(State::kHeader, kHeaderSize);
  }
  Answer(EncodeReply(Reply::kAccepted));
}

void TcpInbound::OnHeader() {
  const auto header = DecodeHeader({in_.data(), want_});
  if (!header.ok()) return Garbage(ReasonOf(header.status()));
  if (header->epoch != hello_.epoch) {
    ++streams_->dropped_stale;
    return Close();
  }
  header_ = *header;
  Expect(State::kBody, header_.bytes);
}

void TcpInbound::OnBody() {
  const auto stream = streams_->open.find({hello_.purpose, hello_.epoch});
  if (stream == streams_->open.end()) {
    ++streams_->dropped_stale;
    return Close();
  }
  absl::Status taken;
  if (HashContent(in_.data(), want_, header_.offset) != header_.content) {
    ++streams_->corrupted;
    stream->second.sink->Corrupted(hello_.sender, header_);
    taken = absl::DataLossError("the content does not match the hash in the header");
  } else {
    taken = stream->second.sink->Take(hello_.sender, header_, {in_.data(), want_});
  }
  if (!taken.ok()) {
    REWIRE_WARN("stream from member %u: a fragment was rejected: %s", hello_.sender,
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
  if (idle || now < deadline_) return;
  if (stage() != Stage::kMember) ++streams_->refused;
  Close();
}

}  // namespace rewire::state
