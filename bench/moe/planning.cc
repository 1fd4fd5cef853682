#include "bench/moe/planning.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/moe/trace.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/hash.h"
#include "reconfig/moe/balance.h"
#include "reconfig/moe/greedy.h"

namespace rewire::bench {
namespace {

constexpr uint32_t kDevices = 8;
constexpr uint32_t kExperts = 128;

// From the number of the input alone: shapes from even to one expert that has nearly all.
void Fill(uint64_t input, moe::Batch* batch) {
  const uint64_t kind = MixWord(input, 0);
  const uint32_t bits = 4 + kind % 14;
  for (uint32_t e = 0; e < kExperts; ++e) {
    const uint64_t word = MixWord(input, e + 1);
    const bool hot = (word >> 58) == 0;
    batch->tokens[e] = static_cast<uint32_t>(word & ((1U << bits) - 1)) << (hot ? kind >> 61 : 0);
    batch->dynamic[e] = (word >> 32) % 4 == 0;
  }
}

uint64_t HashAll(int64_t inputs) {
  moe::Batch batch{kDevices, std::vector<uint32_t>(kExperts), std::vector<uint32_t>(kExperts),
                   std::vector<uint8_t>(kExperts)};
  for (uint32_t e = 0; e < kExperts; ++e) batch.owner[e] = e / (kExperts / kDevices);
  moe::BalanceOptions options;
  options.budget.copies = kDevices - 1;
  uint64_t hash = 0;
  for (int64_t i = 0; i < inputs; ++i) {
    Fill(static_cast<uint64_t>(i), &batch);
    hash = MixWord(hash, moe::Hash(moe::BalanceMoves(batch, options)));
    hash = MixWord(hash, moe::Hash(moe::GreedyMoves(batch, {})));
  }
  return hash;
}

}  // namespace

std::vector<double> TimePlans(int batches) {
  Trace trace({}, 1);
  for (int i = 0; i < 8; ++i) trace.Next();
  std::vector<double> us;
  size_t moves = 0;
  for (int i = 0; i < batches; ++i) {
    trace.Next();
    moe::BalanceOptions options;
    options.budget.copies = kDevices - 1;
    const Time begin = Now();
    moves += moe::BalanceMoves(trace.batch(), options).size();
    us.push_back(static_cast<double>(ToNanoseconds(Now() - begin)) / 1e3);
  }
  if (moves == 0) us.clear();  // nothing was planned
  std::sort(us.begin(), us.end());
  return us;
}

absl::StatusOr<std::vector<uint64_t>> HashPlans(int ranks, int64_t inputs) {
  std::vector<uint64_t> hashes(static_cast<size_t>(ranks));
  std::vector<std::pair<pid_t, int>> children;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) return absl::InternalError("no pipe");
    const pid_t pid = fork();
    if (pid < 0) return absl::InternalError("no process");
    if (pid == 0) {
      const uint64_t hash = HashAll(inputs);
      _exit(write(ends[1], &hash, sizeof hash) == ssize_t{sizeof hash} ? 0 : 1);
    }
    close(ends[1]);
    children.emplace_back(pid, ends[0]);
  }
  absl::Status status;
  for (size_t rank = 0; rank < children.size(); ++rank) {
    const auto [pid, fd] = children[rank];
    if (read(fd, &hashes[rank], sizeof(uint64_t)) != ssize_t{sizeof(uint64_t)}) {
      status = absl::InternalError(absl::StrCat("rank ", rank, " said nothing"));
    }
    close(fd);
    waitpid(pid, nullptr, 0);
  }
  if (!status.ok()) return status;
  return hashes;
}

}  // namespace rewire::bench
