#include "bench/moe/planning.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/moe/trace.h"
#include "reconfig/base/hash.h"
#include "reconfig/moe/exec/node_plan.h"
#include "reconfig/moe/plan/batch.h"
#include "reconfig/moe/plan/planners.h"

namespace rewire::bench {
namespace {

constexpr uint32_t kDevices = 8;
constexpr uint32_t kExperts = 128;
constexpr uint64_t kExpertBytes = 72 << 20;
constexpr uint64_t kRowBytes = 12 << 10;
constexpr uint32_t kRowPs = 155'000;
constexpr uint32_t kKibPs = 2'276;  // 450 GB/s
constexpr uint32_t kStartPs = 50'000'000;
constexpr uint64_t kStep = 12;  // micro-batches between two changes of all weights

// Fills the batch from `input` alone. Shapes range from even to one expert with nearly all tokens.
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

double ProcessorMicroseconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

// Fills postings as a node's processes do for a forward round. Slots keep earlier rounds' weights.
void FillPostings(const std::vector<uint32_t>& tokens, const moe::Shape& shape, uint64_t round,
                  std::vector<moe::Posting>* postings) {
  for (size_t rank = 0; rank < postings->size(); ++rank) {
    moe::Posting& posting = (*postings)[rank];
    const auto first = tokens.begin() + static_cast<ptrdiff_t>(rank * shape.experts);
    posting.copies = shape.slots * static_cast<uint32_t>(postings->size());
    posting.tokens.assign(first, first + shape.experts);
    posting.dynamic = moe::ChooseDynamic(posting.tokens, shape.dynamic);
    if (round % kStep == 1) posting.slots.assign(shape.slots, {});
    posting.stay = true;
  }
}

void TakeSlots(const moe::NodePlan& plan, uint64_t round, std::vector<moe::Posting>* postings) {
  for (const moe::PlacedMove& s : plan.moves) {
    (*postings)[s.move.to].slots[s.slot] = {s.move.expert, round};
  }
}

}  // namespace

PlanTimes TimePlans(uint32_t devices, int batches) {
  TraceShape trace_shape;
  trace_shape.devices = devices;
  Trace trace(trace_shape, 1);
  moe::Shape shape;
  shape.experts = kExperts / devices;
  shape.weight_bytes = shape.grad_bytes = kExpertBytes;
  shape.token_bytes = kRowBytes;
  shape.rows = trace_shape.tokens * trace_shape.top;
  shape.dynamic = trace_shape.dynamic;
  std::vector<moe::Posting> postings(devices);
  PlanTimes times;
  size_t moves = 0;
  for (int i = 0; i < batches; ++i) {
    trace.Next();
    FillPostings(trace.batch().tokens, shape, static_cast<uint64_t>(i) + 1, &postings);
    for (const uint32_t slower : {1U, 10U}) {
      for (moe::Posting& p : postings) p.speeds = {kRowPs, kKibPs * slower, kStartPs};
      const double begin = ProcessorMicroseconds();
      const moe::NodePlan plan = moe::PlanNode(postings, shape);
      (slower == 1 ? times.runtime : times.runtime_slow_copies)
          .push_back(ProcessorMicroseconds() - begin);
      moves += plan.moves.size();
      if (slower == 1) TakeSlots(plan, static_cast<uint64_t>(i) + 1, &postings);
    }
    moe::BalanceOptions options;
    options.budget.copies = devices - 1;
    const double begin = ProcessorMicroseconds();
    moves += moe::BalanceMoves(trace.batch(), options).size();
    times.balance.push_back(ProcessorMicroseconds() - begin);
  }
  if (moves == 0) return {};
  for (auto* us : {&times.runtime, &times.runtime_slow_copies, &times.balance}) {
    std::sort(us->begin(), us->end());
  }
  return times;
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
