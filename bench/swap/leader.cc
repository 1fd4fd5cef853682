#include "bench/swap/leader.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {

namespace {
constexpr seconds kPatience(120);
}

Leader::~Leader() {
  for (const int fd : fds_) close(fd);
  for (const pid_t pid : pids_) {
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

absl::Status Leader::Start() {
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      return absl::InternalError("socketpair failed");
    }
    std::vector<std::string> arguments = {"swap_perf",
                                          "--member-fd",
                                          absl::StrCat(ends[1]),
                                          "--member-rank",
                                          absl::StrCat(rank),
                                          "--member-ranks",
                                          absl::StrCat(options_.ranks),
                                          "--baselines",
                                          absl::StrCat(options_.baselines)};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      fcntl(ends[1], F_SETFD, 0);
      // NCCL refuses two ranks of one host on one GPU.
      if (options_.share) setenv("NCCL_HOSTID", absl::StrCat("member-", rank).c_str(), 1);
      if (!options_.libraries.empty()) {
        const std::string& folder = options_.libraries;
        setenv("REWIRE_NCCL_LIBRARY", (folder + "/libnccl.so.2").c_str(), 1);
        setenv("REWIRE_CUDA_LIBRARY", (folder + "/libcuda.so.1").c_str(), 1);
        setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
      }
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(ends[1]);
    fds_.push_back(ends[0]);
    pids_.push_back(pid);
    if (pid < 0) return absl::InternalError("fork failed");
  }
  return absl::OkStatus();
}

absl::Status Leader::SayToAll(const Packet& packet) {
  for (const int fd : fds_) {
    if (!SendPacket(fd, packet)) return absl::InternalError("a member is gone");
  }
  return absl::OkStatus();
}

absl::StatusOr<Packet> Leader::Hear(size_t member, Say say) {
  Packet packet;
  if (!ReceivePacket(fds_[member], &packet, Now() + kPatience)) {
    return absl::InternalError(absl::StrCat("member ", member, " of ", options_.ranks,
                                            " did not answer (operations lost?)"));
  }
  if (packet.say == Say::kFailed) {
    return absl::InternalError(absl::StrCat("member ", member, ": ", packet.bytes));
  }
  if (packet.say != say) {
    return absl::InternalError(absl::StrCat("member ", member, " said ",
                                            static_cast<int>(packet.say), " instead of ",
                                            static_cast<int>(say)));
  }
  return packet;
}

absl::Status Leader::ShareUniqueId() {
  REWIRE_ASSIGN_OR_RETURN(const Packet id, Hear(0, Say::kUniqueId));
  return SayToAll(id);
}

absl::Status Leader::Meet() {
  for (size_t i = 0; i < fds_.size(); ++i) REWIRE_RETURN_IF_ERROR(Hear(i, Say::kReady).status());
  return SayToAll({Say::kGo, 0, 0, 0, ""});
}

absl::Status Leader::Foreground() {
  REWIRE_RETURN_IF_ERROR(ShareUniqueId());
  for (uint32_t i = 0; i < options_.baselines; ++i) {
    REWIRE_RETURN_IF_ERROR(Meet());
    REWIRE_RETURN_IF_ERROR(ShareUniqueId());
  }
  for (uint32_t i = 0; i < options_.baselines; ++i) {
    REWIRE_RETURN_IF_ERROR(Meet());
    REWIRE_RETURN_IF_ERROR(Meet());
    REWIRE_RETURN_IF_ERROR(ShareUniqueId());
  }
  REWIRE_RETURN_IF_ERROR(Meet());
  return ShareUniqueId();
}

absl::StatusOr<uint64_t> Leader::Furthest() {
  REWIRE_RETURN_IF_ERROR(SayToAll({Say::kQuery, 0, 0, 0, ""}));
  uint64_t furthest = 0;
  for (size_t i = 0; i < fds_.size(); ++i) {
    REWIRE_ASSIGN_OR_RETURN(const Packet counter, Hear(i, Say::kCounter));
    furthest = std::max(furthest, counter.a);
  }
  furthest_ = furthest;
  return furthest;
}

absl::Status Leader::KeepQuiet(uint64_t operations) {
  REWIRE_ASSIGN_OR_RETURN(uint64_t before, Furthest());
  Time moved = Now();
  for (;;) {
    std::this_thread::sleep_for(nap_);
    REWIRE_ASSIGN_OR_RETURN(const uint64_t now, Furthest());
    const uint64_t issued = now - std::exchange(before, now);
    if (issued >= operations) {
      // Makes the next stretch long enough with a margin of a fifth.
      nap_ = std::max<Duration>(nap_ * 6 * operations / (5 * issued), milliseconds(1));
      return absl::OkStatus();
    }
    if (issued > 0) moved = Now();
    if (Now() - moved > kPatience) {
      return absl::DeadlineExceededError(
          absl::StrCat("no operation was issued for ", kPatience.count(), " s"));
    }
    // A stretch lies between two queries, so a slow workload needs a longer stretch.
    nap_ = std::min<Duration>(nap_ * 3 / 2, kPatience / 2);
  }
}

absl::Status Leader::Agree(uint64_t epoch) {
  uint64_t doubled = 1;
  Duration round_trip{};
  for (;;) {
    REWIRE_ASSIGN_OR_RETURN(const uint64_t furthest, Furthest());
    const Time proposed_at = Now();
    pace_.Record(proposed_at, furthest);
    // The rule is the agent's leader's; nothing is stored here.
    const uint64_t warm = furthest + pace_.Margin(options_.margin, 2 * round_trip) * doubled;
    REWIRE_RETURN_IF_ERROR(SayToAll({Say::kPropose, epoch, warm, warm + options_.distance, ""}));
    bool all = true;
    for (size_t i = 0; i < fds_.size(); ++i) {
      REWIRE_ASSIGN_OR_RETURN(const Packet pledged, Hear(i, Say::kPledged));
      all &= pledged.a == 1;
    }
    REWIRE_RETURN_IF_ERROR(SayToAll({Say::kDecide, epoch, all ? 1u : 0u, 0, ""}));
    if (all) return absl::OkStatus();
    ++result_.refused_rounds;
    round_trip = std::max(round_trip, Now() - proposed_at);
    doubled *= 2;
  }
}

absl::Status Leader::Swap(uint64_t epoch) {
  REWIRE_RETURN_IF_ERROR(KeepQuiet(options_.quiet));
  pace_ = elastic::Pace();
  pace_.Record(Now(), furthest_);
  if (!SendPacket(fds_[0], {Say::kMint, 0, 0, 0, ""})) return absl::InternalError("member 0 gone");
  REWIRE_ASSIGN_OR_RETURN(Packet id, Hear(0, Say::kUniqueId));
  id.say = Say::kBuild;
  id.a = epoch;
  REWIRE_RETURN_IF_ERROR(SayToAll(id));
  for (size_t i = 0; i < fds_.size(); ++i) REWIRE_RETURN_IF_ERROR(Hear(i, Say::kReady).status());
  REWIRE_RETURN_IF_ERROR(Agree(epoch));
  for (size_t i = 0; i < fds_.size(); ++i) REWIRE_RETURN_IF_ERROR(Hear(i, Say::kEntered).status());
  ++result_.entered;
  REWIRE_RETURN_IF_ERROR(SayToAll({Say::kRetire, epoch, 0, 0, ""}));
  for (size_t i = 0; i < fds_.size(); ++i) REWIRE_RETURN_IF_ERROR(Hear(i, Say::kRetired).status());
  return absl::OkStatus();
}

absl::Status Leader::Gather() {
  if (!SendPacket(fds_[0], {Say::kStop, 0, 0, 0, ""})) return absl::InternalError("member 0 gone");
  for (size_t i = 0; i < fds_.size(); ++i) {
    std::string text;
    for (bool last = false; !last;) {
      REWIRE_ASSIGN_OR_RETURN(const Packet part, Hear(i, Say::kResult));
      text += part.bytes;
      last = part.a == 1;
    }
    REWIRE_ASSIGN_OR_RETURN(MemberReport report, MemberReport::Decode(text));
    result_.members.push_back(std::move(report));
  }
  return Meet();
}

absl::Status Leader::Finish() {
  for (pid_t& pid : pids_) {
    int status = 0;
    const Time deadline = Now() + seconds(30);
    pid_t ended = 0;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && Now() < deadline) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    if (ended == 0) return absl::DeadlineExceededError("a member does not end");
    pid = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      return absl::InternalError(absl::StrCat("a member ended with wait status ", status));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LeaderResult> Leader::Run() {
  REWIRE_RETURN_IF_ERROR(Start());
  REWIRE_RETURN_IF_ERROR(Foreground());
  REWIRE_RETURN_IF_ERROR(KeepQuiet(options_.settle));
  for (uint64_t epoch = 1; epoch <= options_.swaps; ++epoch) REWIRE_RETURN_IF_ERROR(Swap(epoch));
  REWIRE_RETURN_IF_ERROR(Gather());
  REWIRE_RETURN_IF_ERROR(Finish());
  return result_;
}

}  // namespace rewire::bench
