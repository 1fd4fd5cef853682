// A listening socket whose callers introduce themselves with a Hello. Malformed data,
// unauthenticated peers and silent callers are dropped; a caller that nobody has asked for yet is
// kept. Thread-safe: several threads may wait for different callers.
#pragma once

#include <netinet/in.h>

#include <functional>
#include <list>
#include <vector>

#include "reconfig/base/mutex.h"
#include "tests/simgpu/nccl/socket.h"

struct pollfd;

namespace simnccl {

enum class HelloKind : uint32_t {
  kRegister = 1,  // to the root: rank `from` listens at `address`
  kLookup = 2,    // to the root: look up the address of rank `from`
  kRing = 3,      // to the next rank of the bootstrap ring
  kMessage = 4,   // one message of `bytes` bytes follows
};

// The first bytes of every bootstrap connection. All hosts have the same byte order (as in NCCL).
struct Hello {
  static constexpr uint64_t kMagic = 0x73696d6e63636c31;  // "simnccl1"
  uint64_t magic = kMagic;
  uint64_t key = 0;  // identifies the communicator
  HelloKind kind = HelloKind::kRegister;
  int32_t from = 0;
  uint64_t tag = 0;
  uint32_t bytes = 0;
  int32_t ranks = 0;  // to the root: the number of ranks that it serves
  sockaddr_in address{};
};

struct Caller {
  Hello hello;
  rewire::UniqueFd fd;
};

class Mailbox {
 public:
  ncclResult_t Open();
  [[nodiscard]] const sockaddr_in& address() const { return address_; }

  // Waits for a caller that `wanted` accepts.
  ncclResult_t Take(const std::function<bool(const Hello&)>& wanted, const Patience& patience,
                    Caller* caller) REWIRE_EXCLUDES(mutex_);
  // Takes a caller without waiting; returns false if there is none.
  bool TakeNow(const std::function<bool(const Hello&)>& wanted, Caller* caller)
      REWIRE_EXCLUDES(mutex_);
  // Adds the descriptors to poll for the next caller.
  void AppendPollFds(std::vector<pollfd>* fds) REWIRE_EXCLUDES(mutex_);

 private:
  struct Accepted {
    rewire::UniqueFd fd;
    rewire::Time since;
    size_t got = 0;
    char bytes[sizeof(Hello)] = {};
  };
  void ReadAccepted() REWIRE_REQUIRES(mutex_);

  sockaddr_in address_{};
  rewire::UniqueFd listener_;
  rewire::Mutex mutex_;
  std::list<Accepted> accepted_ REWIRE_GUARDED_BY(mutex_);
  std::list<Caller> callers_ REWIRE_GUARDED_BY(mutex_);
};

// Connects to a mailbox and introduces itself.
ncclResult_t Call(const sockaddr_in& address, const Hello& hello, const Patience& patience,
                  rewire::UniqueFd* fd);

}  // namespace simnccl
