#include "tests/simgpu/nccl/child.h"

#include <algorithm>

#include "reconfig/base/hash.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/free.h"
#include "tests/simgpu/nccl/init.h"

namespace simnccl {
namespace {

// The hash has NCCL's inputs. For a shrink the count and the color are zero, so two shrinks of one
// parent have the same hash.
uint64_t ChildHash(uint64_t parent, uint64_t split_count, int color) {
  return rewire::MixWord(rewire::MixWord(parent, split_count),
                         static_cast<uint64_t>(static_cast<int64_t>(color)));
}

ncclResult_t Make(ncclComm* parent, const std::vector<int>& members, uint64_t hash, uint64_t key,
                  const Config& config, ncclComm_t* out) {
  const auto self = std::find(members.begin(), members.end(), parent->rank);
  const int rank = static_cast<int>(self - members.begin());
  ContextScope scope(parent->driver, parent->context);
  ncclComm* child = nullptr;
  SIMNCCL_TRY(NewComm(static_cast<int>(members.size()), rank, config, &child));
  child->hash = hash;
  parent->abort->AddChild(child->abort);
  const ncclResult_t result = InitComm(child, [&](Bootstrap* b, const Patience& patience) {
    return b->InitFromParent(&parent->bootstrap, key, members, rank, patience);
  });
  parent->abort->DropChildren();
  if (result != ncclSuccess) {
    Free(child, true);
    return result;
  }
  __atomic_store_n(out, child, __ATOMIC_RELEASE);
  return ncclSuccess;
}

}  // namespace

ncclResult_t Split(ncclComm* parent, int color, int key, uint64_t child, const Config& config,
                   ncclComm_t* out) {
  struct Choice {
    int color;
    int key;
  };
  std::vector<Choice> choices(parent->nranks);
  choices[parent->rank] = {color, key};
  SIMNCCL_TRY(parent->bootstrap.AllGather(choices.data(), sizeof(Choice), PatienceOf(parent)));
  ++parent->split_count;
  if (color == NCCL_SPLIT_NOCOLOR) {
    __atomic_store_n(out, nullptr, __ATOMIC_RELEASE);
    return ncclSuccess;
  }
  std::vector<int> members;
  for (int r = 0; r < parent->nranks; ++r) {
    if (choices[r].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return choices[a].key < choices[b].key; });
  const uint64_t bootstrap_key = rewire::MixWord(rewire::MixWord(parent->bootstrap.key(), child),
                                                 static_cast<uint32_t>(color));
  return Make(parent, members, ChildHash(parent->hash, parent->split_count, color), bootstrap_key,
              config, out);
}

ncclResult_t Shrink(ncclComm* parent, const std::vector<int>& survivors, uint64_t child,
                    const Config& config, ncclComm_t* out) {
  uint64_t bootstrap_key = rewire::MixWord(~parent->bootstrap.key(), child);
  for (const int rank : survivors) bootstrap_key = rewire::MixWord(bootstrap_key, rank + 1);
  return Make(parent, survivors, ChildHash(parent->hash, 0, 0), bootstrap_key, config, out);
}

}  // namespace simnccl
