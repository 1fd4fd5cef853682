// Every function of shim/gen/nccl_functions.txt reaches the real library with its arguments intact.
#include <cstddef>
#include <cstring>
#include <span>
#include <tuple>

#include "shim/preload/real_nccl.h"
#include "tests/unit/shim/preload/shim_fixture.h"

namespace rewire::shim {
namespace {

// Storage for arguments that the shim itself dereferences.
struct Storage {
  ncclComm_t comms[256] = {};
  ncclUniqueId ids[256] = {};  // Argument() gives counts up to 255
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  void* pointer = nullptr;
  ncclWindow_t window = nullptr;
  ncclRedOp_t op = ncclSum;
  int number = 0;
  ncclResult_t result = ncclSuccess;
  // The shim's view of a real communicator: anything but our magic.
  alignas(64) unsigned char real[256] = {};
};

class ForwardingTest : public ShimTest {
 protected:
  Storage storage_;
  ncclComm_t handle_ = nullptr;    // the application's argument
  ncclComm_t expected_ = nullptr;  // the argument that NCCL must get
  unsigned char next_ = 1;

  template <typename T>
  T Argument() {
    if constexpr (std::is_same_v<T, ncclComm_t>) {
      return handle_;
    } else if constexpr (std::is_same_v<T, ncclComm_t*>) {
      return storage_.comms;
    } else if constexpr (std::is_same_v<T, ncclUniqueId*> ||
                         std::is_same_v<T, const ncclUniqueId*>) {
      return storage_.ids;
    } else if constexpr (std::is_same_v<T, ncclConfig_t*>) {
      return &storage_.config;
    } else if constexpr (std::is_same_v<T, void**>) {
      return &storage_.pointer;
    } else if constexpr (std::is_same_v<T, ncclWindow_t*>) {
      return &storage_.window;
    } else if constexpr (std::is_same_v<T, ncclRedOp_t*>) {
      return &storage_.op;
    } else if constexpr (std::is_same_v<T, int*>) {
      return &storage_.number;
    } else if constexpr (std::is_same_v<T, ncclResult_t*>) {
      return &storage_.result;
    } else if constexpr (std::is_same_v<T, void*>) {
      return storage_.real + next_++;  // readable: the scalar of an operator
    } else if constexpr (std::is_same_v<T, ncclDataType_t>) {
      return static_cast<T>(1 + next_++ % 10);
    } else if constexpr (std::is_enum_v<T> && !std::is_same_v<T, ncclRedOp_t>) {
      return static_cast<T>(1);  // every enum has value 1; a value that an enum lacks is undefined
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      return static_cast<T>(next_++);
    } else {
      T value;
      for (std::byte& b : std::as_writable_bytes(std::span(&value, 1))) b = std::byte{next_++};
      return value;
    }
  }

  // Compares the library's arguments with those passed. For out-parameters that the shim stores
  // itself, only the presence of an address is checked.
  template <typename... P>
  void Compare(const char* name, const std::tuple<P...>& passed, bool ours) {
    const NoopControl* noop = NoopNccl();
    // Only ncclCommInitRankConfig, not ncclCommInitRank, leaves a failed communicator to the
    // caller.
    const bool init_rank = std::string(name) == "CommInitRank";
    ASSERT_STREQ(init_rank ? "CommInitRankConfig" : name, noop->name);
    size_t offset = 0;
    std::apply([&](const auto&... value) { (..., CompareOne(name, value, ours, &offset)); },
               passed);
    if (init_rank) CompareOne<ncclConfig_t*>(name, nullptr, ours, &offset);
    EXPECT_EQ(offset, noop->size) << name;
  }

  template <typename T>
  void CompareOne(const char* name, const T& passed, bool ours, size_t* offset) {
    T got;
    const auto bytes = std::as_writable_bytes(std::span(&got, 1));
    memcpy(bytes.data(), NoopNccl()->bytes + *offset, bytes.size());
    *offset += bytes.size();
    if constexpr (std::is_same_v<T, ncclComm_t>) {
      EXPECT_EQ(expected_, got) << name;
    } else if constexpr (std::is_same_v<T, ncclComm_t*>) {
      // A creation with rank < ranks is the shim's own, so its address is not compared.
      const bool creation = std::string(name).rfind("CommInit", 0) == 0;
      EXPECT_NE(nullptr, got) << name;
      if (ours) {
        EXPECT_NE(passed, got) << name;
      } else if (!creation) {
        EXPECT_EQ(passed, got) << name;
      }
    } else if constexpr (std::is_same_v<T, ncclRedOp_t*> || std::is_same_v<T, ncclWindow_t*>) {
      if (!ours) {
        EXPECT_EQ(passed, got) << name;
      }
    } else {
      EXPECT_EQ(0, memcmp(&passed, &got, bytes.size())) << name << " argument at " << *offset;
    }
  }

  template <typename R, typename... P>
  void Forward(const char* name, R (*function)(P...), bool ours) {
    const std::tuple<std::remove_cv_t<P>...> passed{Argument<std::remove_cv_t<P>>()...};
    const uint64_t calls = NoopNccl()->calls;
    NoopNccl()->name = "";
    std::apply(function, passed);
    EXPECT_EQ(calls + 1, NoopNccl()->calls) << name;
    Compare(name, passed, ours);
  }

  template <typename... P>
  static constexpr bool kTakesComm = (std::is_same_v<std::remove_cv_t<P>, ncclComm_t> || ...);

  // With a virtual communicator: NCCL gets the real communicator.
  template <typename R, typename... P>
  void ForwardOurs(const char* name, R (*function)(P...)) {
    if constexpr (kTakesComm<P...>) {
      NoopNccl()->effects = true;
      NoopNccl()->record = false;
      handle_ = Make();
      expected_ = V(handle_)->current.load()->Real();
      NoopNccl()->effects = false;
      NoopNccl()->record = true;
      // Outside a group, an abort also opens and ends a group.
      const bool abort = std::string(name) == "CommAbort";
      if (abort) ncclGroupStart();
      Forward(name, function, true);
      if (abort) ncclGroupEnd();
      // A started group stays open only for this test.
    }
  }
};

TEST_F(ForwardingTest, UnknownHandlesPassThroughIntact) {
  handle_ = reinterpret_cast<ncclComm_t>(storage_.real);
  expected_ = handle_;
  // The first use loads the library and asks for its version, which needs the effect of the call.
  ASSERT_NE(0, Real()->version);
  NoopNccl()->effects = false;
  NoopNccl()->record = true;
#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments) \
  Forward(#name, &nccl##name, false);
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
}

TEST_F(ForwardingTest, NullHandlesGoToNccl) {
  NoopNccl()->record = true;
  NoopNccl()->effects = false;
  const uint64_t calls = NoopNccl()->calls;
  AllReduce(nullptr);
  ncclCommDestroy(nullptr);
  ncclCommAbort(nullptr);
  ncclCommCount(nullptr, &storage_.number);
  ncclCommSplit(nullptr, 0, 0, storage_.comms, nullptr);
  // The shim does not read addresses outside its own communicators.
  AllReduce(reinterpret_cast<ncclComm_t>(uintptr_t{1}));
  AllReduce(reinterpret_cast<ncclComm_t>(uintptr_t{16}));
  EXPECT_EQ(calls + 7, NoopNccl()->calls);
}

TEST_F(ForwardingTest, OurHandlesAreTranslated) {
#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments)           \
  if (std::string(#name) != "CommCount" && std::string(#name) != "CommUserRank" && \
      std::string(#name) != "CommCuDevice") {                                      \
    ForwardOurs(#name, &nccl##name);                                               \
  }
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
}

TEST_F(ForwardingTest, CountRankAndDeviceAreAnsweredWithoutNccl) {
  const ncclComm_t comm = Make(7, 5);
  const uint64_t calls = NoopNccl()->calls;
  int count = 0;
  int rank = 0;
  int device = 0;
  EXPECT_EQ(ncclSuccess, ncclCommCount(comm, &count));
  EXPECT_EQ(ncclSuccess, ncclCommUserRank(comm, &rank));
  EXPECT_EQ(ncclSuccess, ncclCommCuDevice(comm, &device));
  EXPECT_EQ(7, count);
  EXPECT_EQ(5, rank);
  EXPECT_EQ(3, device);
  EXPECT_EQ(calls, NoopNccl()->calls);
  EXPECT_EQ(ncclInvalidArgument, ncclCommCount(comm, nullptr));
  EXPECT_EQ(ncclSuccess, ncclCommDestroy(comm));
}

// NCCL calls its own exports through the PLT, with real handles, from inside our call.
TEST_F(ForwardingTest, NcclMayCallItsExportsWithRealHandles) {
  static ncclComm_t real;
  static int inner;
  const ncclComm_t comm = Make();
  real = V(comm)->current.load()->Real();
  inner = 0;
  NoopNccl()->on_call = [](const char* name) {
    if (std::string(name) != "AllReduce") return;
    int count = 0;
    if (ncclCommCount(real, &count) == ncclSuccess && count == 2) ++inner;
  };
  EXPECT_EQ(ncclSuccess, AllReduce(comm));
  EXPECT_EQ(1, inner);
  EXPECT_EQ(1u, V(comm)->issued);
  NoopNccl()->on_call = nullptr;
  EXPECT_EQ(ncclSuccess, ncclCommDestroy(comm));
}

}  // namespace
}  // namespace rewire::shim
