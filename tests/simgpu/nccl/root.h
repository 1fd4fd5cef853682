// The bootstrap root: the process that minted a unique id serves it. One thread per process serves
// all of its ids; it runs while an id is outstanding. Ranks register their listening address and
// look up their successor's. When all of an id's ranks have been answered, the id is done.
#pragma once

#include <netinet/in.h>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

// The content of an ncclUniqueId.
struct IdContent {
  static constexpr uint64_t kMagic = 0x73696d6e63636c69;  // "simnccli"
  uint64_t magic;
  uint64_t key;
  sockaddr_in address;
};

// The root's answer to a look-up.
struct RootAnswer {
  ncclResult_t result;
  sockaddr_in address;
};

ncclResult_t MintId(ncclUniqueId* id);
ncclResult_t ParseId(const ncclUniqueId& id, IdContent* content);

}  // namespace simnccl
