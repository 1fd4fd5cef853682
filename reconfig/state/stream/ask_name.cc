// Implements AskName(): asks one member for the value of one name; see ask_name.h.
#include "reconfig/state/stream/ask_name.h"

#include "reconfig/base/bytes.h"
#include "reconfig/base/socket.h"

namespace rewire::state {
namespace {

constexpr Duration kAgain = milliseconds(10);  // pause before the next connection

absl::Status ToStatus(const SocketStatus& s) {
  if (s.ok()) return absl::OkStatus();
  return s.code == SocketCode::kTimeout ? absl::DeadlineExceededError(s.text)
                                        : absl::UnavailableError(s.text);
}

// Runs the handshake, and sends the name with the proof. *dropped: the connection failed before the
// member accepted the proof, as happens when the member has too many connections. The caller tries
// again.
absl::Status Open(int fd, const WorldMember& member, const Key& key, const WorldMember& asker,
                  std::string_view name, Time deadline, bool* dropped) {
  const ConnectingHandshake handshake(key, {Purpose::kNames, 0, asker.member, member.member,
                                            asker.incarnation, member.incarnation, Nonce{}});
  char answer[kStreamChallengeSize];
  *dropped = true;
  if (auto s = ToStatus(SendAll(fd, handshake.hello(), deadline)); !s.ok()) return s;
  if (auto s = ToStatus(ReceiveAll(fd, answer, sizeof answer, deadline)); !s.ok()) return s;
  *dropped = false;
  const absl::StatusOr<std::string> proof = handshake.ProofFor({answer, sizeof answer});
  if (absl::IsUnavailable(proof.status())) {
    return absl::UnavailableError("ask member " + std::to_string(member.member) + " at " +
                                  member.data_address +
                                  ": the member does not answer questions for names yet");
  }
  if (!proof.ok()) {
    return absl::PermissionDeniedError("ask member " + std::to_string(member.member) + " at " +
                                       member.data_address +
                                       ": wrong proof: the member does not have the job's key");
  }
  ByteWriter out;
  out.PutRaw(*proof);
  out.PutString(name);
  char reply[kReplySize];
  *dropped = true;
  if (auto s = ToStatus(SendAll(fd, out.bytes(), deadline)); !s.ok()) return s;
  if (auto s = ToStatus(ReceiveAll(fd, reply, sizeof reply, deadline)); !s.ok()) return s;
  *dropped = false;
  const absl::StatusOr<Reply> decoded = DecodeReply({reply, sizeof reply});
  if (decoded.ok() && *decoded == Reply::kAccepted) return absl::OkStatus();
  return absl::DataLossError("ask member " + std::to_string(member.member) + " at " +
                             member.data_address + ": malformed reply");
}

}  // namespace

absl::StatusOr<std::optional<std::string>> AskName(const WorldMember& member, const Key& key,
                                                   const WorldMember& asker, std::string_view name,
                                                   Time deadline) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("ask for a name: bytes=" + std::to_string(name.size()) +
                                      ": must be 1 to " + std::to_string(kMaxNameBytes));
  }
  const std::string& address = member.data_address;
  UniqueFd fd;
  absl::Status opened;
  for (bool dropped = true; dropped;) {
    fd.reset();
    if (auto s = ToStatus(ConnectTcp(address, deadline, &fd)); !s.ok()) return s;
    opened = Open(fd.get(), member, key, asker, name, deadline, &dropped);
    if (opened.ok()) break;
    if (!dropped || Now() + kAgain >= deadline) return opened;
    WaitReady(-1, 0, Now() + kAgain);
  }
  char length[4];
  if (auto s = ToStatus(ReceiveAll(fd.get(), length, sizeof length, deadline)); !s.ok()) return s;
  const auto bytes = ByteReader({length, sizeof length}).Get<uint32_t>();
  if (bytes > kMaxValueBytes) {
    return absl::DataLossError("ask member " + std::to_string(member.member) + " at " + address +
                               ": malformed value: bytes=" + std::to_string(bytes) +
                               ": must be at most " + std::to_string(kMaxValueBytes));
  }
  if (bytes == 0) return std::optional<std::string>();
  std::string value(bytes, '\0');
  if (auto s = ToStatus(ReceiveAll(fd.get(), value.data(), bytes, deadline)); !s.ok()) return s;
  return std::optional<std::string>(std::move(value));
}

}  // namespace rewire::state
