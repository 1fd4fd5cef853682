// Registered buffers, windows and operators follow a communicator to its next generation.
#include <cstring>
#include <utility>

#include "shim/preload/registration_list.h"
#include "tests/unit/shim/preload/shim_fixture.h"

namespace rewire::shim {
namespace {

class RegistrationTest : public ShimTest {
 protected:
  RegistrationTest() {
    comm_ = Make();
    NoopNccl()->record = true;
  }
  ~RegistrationTest() override { ncclCommAbort(comm_); }
  template <typename T>
  static T Recorded(size_t offset) {
    T value;
    memcpy(&value, NoopNccl()->bytes + offset, sizeof value);
    return value;
  }
  // Simulates a cut before the next operation, which is not recorded.
  Generation* SwapAtNextOperation() {
    UseCore();
    Generation* old = nullptr;
    at_cut = [&](VirtualCommunicator* comm, CallSite) {
      comm->stop_at = kNoCut;
      old = Swap(comm_, 1);
      return ncclSuccess;
    };
    V(comm_)->stop_at = 0;
    NoopNccl()->on_call = [](const char* name) {
      if (strcmp(name, "AllReduce") == 0) NoopNccl()->record = false;
    };
    EXPECT_EQ(ncclSuccess, AllReduce(comm_));
    NoopNccl()->on_call = nullptr;
    NoopNccl()->record = true;
    return old;
  }
  ncclComm_t comm_;
};

TEST_F(RegistrationTest, OperatorsAreMadeAgainAndTranslated) {
  float scalar = 0.5F;
  ncclRedOp_t first;
  ncclRedOp_t second;
  ASSERT_EQ(ncclSuccess,
            ncclRedOpCreatePreMulSum(&first, &scalar, ncclFloat, ncclScalarHostImmediate, comm_));
  ASSERT_EQ(ncclSuccess,
            ncclRedOpCreatePreMulSum(&second, &scalar, ncclFloat, ncclScalarHostImmediate, comm_));
  EXPECT_NE(first, second);
  ASSERT_EQ(ncclSuccess, ncclRedOpDestroy(first, comm_));
  scalar = 9;  // the recipe has a copy
  Generation* old = Swap(comm_, 1);
  ASSERT_STREQ("RedOpCreatePreMulSum", NoopNccl()->name);
  float kept = 0;
  memcpy(&kept, V(comm_)->registrations.All()[0].scalar, sizeof kept);
  EXPECT_EQ(0.5F, kept);
  ncclAllReduce(nullptr, nullptr, 1, ncclFloat, second, comm_, nullptr);
  // It is the first operator of the new real communicator, and was the second of the old one.
  constexpr size_t kOp = 3 * sizeof(void*) + sizeof(ncclDataType_t);
  EXPECT_EQ(ncclNumOps + 100, Recorded<int>(kOp));
  ncclAllReduce(nullptr, nullptr, 1, ncclFloat, ncclMax, comm_, nullptr);
  EXPECT_EQ(ncclMax, Recorded<int>(kOp));
  EXPECT_EQ(ncclSuccess, ncclRedOpDestroy(second, comm_));
  EXPECT_EQ(ncclNumOps + 100, Recorded<int>(0));
  Retire(old);
}

TEST_F(RegistrationTest, BuffersAndWindowsAreMadeAgain) {
  char buffer[64];
  void* handle = nullptr;
  ncclWindow_t window = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommRegister(comm_, buffer, sizeof buffer, &handle));
  ASSERT_EQ(ncclSuccess,
            ncclCommWindowRegister(comm_, buffer, 32, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT_EQ(2u, V(comm_)->registrations.All().size());
  Generation* old = SwapAtNextOperation();
  ASSERT_STREQ("CommWindowRegister", NoopNccl()->name);  // the program's thread makes the call
  EXPECT_EQ(static_cast<void*>(buffer), Recorded<void*>(sizeof(void*)));
  EXPECT_EQ(32u, Recorded<size_t>(2 * sizeof(void*)));
  EXPECT_EQ(NCCL_WIN_COLL_SYMMETRIC, Recorded<int>(4 * sizeof(void*)));
  const uint64_t of_new = *V(comm_)->current.load()->values.Get(1);
  EXPECT_NE(reinterpret_cast<uint64_t>(window), of_new);
  ASSERT_EQ(ncclSuccess, ncclCommWindowDeregister(comm_, window));
  EXPECT_EQ(of_new, Recorded<uint64_t>(sizeof(void*)));
  ASSERT_EQ(ncclSuccess, ncclCommDeregister(comm_, handle));
  EXPECT_TRUE(V(comm_)->registrations.All().empty());
  // The old generation's own registrations are freed with its real communicator.
  delete static_cast<int*>(handle);
  delete reinterpret_cast<int*>(window);
  Retire(old);
}

TEST_F(RegistrationTest, ReplayByABuilderMakesNoWindows) {
  char buffer[64];
  ncclWindow_t window = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommWindowRegister(comm_, buffer, 32, &window, 0));
  Generation* old = Swap(comm_, 1);
  // Windows are collective, and the other ranks may not have come so far.
  EXPECT_STRNE("CommWindowRegister", NoopNccl()->name);
  EXPECT_FALSE(V(comm_)->current.load()->values.Get(0).has_value());
  delete reinterpret_cast<int*>(window);
  Retire(old);
}

TEST_F(RegistrationTest, AnOperatorIsNoRegistrationOnTheNextGeneration) {
  Generation* next = Services()->new_generation(1, 2, 1);
  EXPECT_FALSE(Registers(V(comm_), next));
  float scalar = 0.5F;
  ncclRedOp_t op;
  ASSERT_EQ(ncclSuccess,
            ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm_));
  EXPECT_FALSE(Registers(V(comm_), next));
  void* handle = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommRegister(comm_, &scalar, sizeof scalar, &handle));
  EXPECT_TRUE(Registers(V(comm_), next));
  EXPECT_FALSE(Registers(V(comm_), V(comm_)->current.load()));
  EXPECT_EQ(ncclSuccess, ncclCommDeregister(comm_, handle));
  Services()->free_generation(next);
}

TEST_F(RegistrationTest, NcclMayStoreAWindowAfterTheCall) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t comm = Make(2, 0, &config);
  char buffer[64];
  ncclWindow_t window = nullptr;
  for (const bool grouped : {false, true}) {
    if (grouped) ncclGroupStart();
    NoopNccl()->result = ncclInProgress;
    ASSERT_EQ(ncclInProgress, ncclCommWindowRegister(comm, buffer, 32, &window, 0));
    NoopNccl()->result = ncclSuccess;
    if (grouped) ncclGroupEnd();
    EXPECT_TRUE(V(comm)->registrations.All().empty());
    NoopStoreWindow();
    EXPECT_EQ(nullptr, window);
    ncclResult_t state = ncclInternalError;
    ASSERT_EQ(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    EXPECT_NE(nullptr, window);
    EXPECT_EQ(1u, V(comm)->registrations.All().size());
    EXPECT_EQ(0u, V(comm)->pins);
    EXPECT_EQ(ncclSuccess, ncclCommWindowDeregister(comm, std::exchange(window, nullptr)));
  }
  ncclCommAbort(comm);
}

TEST_F(RegistrationTest, SwapOfANonBlockingCommunicatorWaitsForItsWindows) {
  UseCore();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t comm = Make(2, 0, &config);
  char buffer[64];
  ncclWindow_t window = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommWindowRegister(comm, buffer, 32, &window, 0));
  ncclResult_t state = ncclInternalError;
  ASSERT_EQ(ncclSuccess, ncclCommGetAsyncError(comm, &state));
  Generation* old = Swap(comm, 1);
  V(comm)->stop_at = 0;
  NoopNccl()->async_error = ncclInProgress;
  NoopNccl()->on_call = [](const char* name) {
    const bool registers = strcmp(name, "CommWindowRegister") == 0;
    NoopNccl()->result = registers ? ncclInProgress : ncclSuccess;
    if (strcmp(name, "CommGetAsyncError") != 0) return;
    NoopStoreWindow();
    NoopNccl()->async_error = ncclSuccess;
  };
  EXPECT_EQ(ncclSuccess, AllReduce(comm));
  NoopNccl()->on_call = nullptr;
  EXPECT_NE(0u, V(comm)->current.load()->values.Get(0).value_or(0));
  EXPECT_EQ(ncclSuccess, ncclCommWindowDeregister(comm, window));
  delete reinterpret_cast<int*>(window);
  Retire(old);
  ncclCommAbort(comm);
}

TEST_F(RegistrationTest, WindowRegisteredInAGroupIsRecordedAtTheGroupsEnd) {
  char buffer[64];
  ncclWindow_t window = nullptr;
  ncclGroupStart();
  ASSERT_EQ(ncclSuccess, ncclCommWindowRegister(comm_, buffer, 32, &window, 0));
  EXPECT_TRUE(V(comm_)->registrations.All().empty());
  ncclGroupEnd();
  EXPECT_EQ(1u, V(comm_)->registrations.All().size());
  EXPECT_EQ(ncclSuccess, ncclCommWindowDeregister(comm_, window));
}

TEST_F(RegistrationTest, ReplaySkipsWhatTheGenerationHas) {
  char buffer[64];
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommRegister(comm_, buffer, 32, &first));
  Generation* old = Swap(comm_, 1);
  Generation* now = V(comm_)->current.load();
  const uint64_t kept = *now->values.Get(0);
  // Registered while another generation was built: `now` represents that generation.
  ASSERT_EQ(ncclSuccess, ncclCommRegister(comm_, buffer, 64, &second));
  Generation* late = NewGeneration(2, 2, 0);
  late->real = now->Real();
  ASSERT_TRUE(late->values.Set(0, kept));
  EXPECT_EQ(ncclSuccess, Services()->replay(V(comm_), late));
  EXPECT_EQ(kept, *late->values.Get(0));
  ASSERT_TRUE(late->values.Get(1).has_value());
  delete reinterpret_cast<int*>(*late->values.Get(1));
  FreeGeneration(late);
  EXPECT_EQ(ncclSuccess, ncclCommDeregister(comm_, second));
  EXPECT_EQ(ncclSuccess, ncclCommDeregister(comm_, first));
  delete static_cast<int*>(first);
  Retire(old);
}

TEST_F(RegistrationTest, ReplayReturnsNcclsError) {
  char buffer[64];
  void* handle = nullptr;
  ASSERT_EQ(ncclSuccess, ncclCommRegister(comm_, buffer, sizeof buffer, &handle));
  Generation* next = NewGeneration(1, 2, 0);
  NoopNccl()->result = ncclSystemError;
  EXPECT_EQ(ncclSystemError, Services()->replay(V(comm_), next));
  NoopNccl()->result = ncclSuccess;
  FreeGeneration(next);
  EXPECT_EQ(ncclSuccess, ncclCommDeregister(comm_, handle));
}

TEST_F(RegistrationTest, ReportsANewPinOnce) {
  UseCore();
  const ncclComm_t comm = Make();
  notes.clear();
  ncclDevCommCreate(comm, nullptr, nullptr);
  ncclDevCommCreate(comm, nullptr, nullptr);
  ncclSignal(0, 0, 0, 0, comm, nullptr);
  EXPECT_EQ(notes, (std::vector<std::string>{"pinned 2", "pinned 10"}));
  EXPECT_EQ(ncclSuccess, ncclCommDestroy(comm));
}

TEST_F(RegistrationTest, PinsCommunicatorsThatCannotSwap) {
  const auto pinned = [this](Pin pin) {
    return (V(comm_)->pins.load() & static_cast<uint32_t>(pin)) != 0;
  };
  EXPECT_EQ(0u, V(comm_)->pins);
  ncclDevCommCreate(comm_, nullptr, nullptr);
  EXPECT_TRUE(pinned(Pin::kDeviceComm));
  EXPECT_FALSE(pinned(Pin::kSignals));
  ncclSignal(0, 0, 0, 0, comm_, nullptr);
  EXPECT_TRUE(pinned(Pin::kSignals));
  char buffer[64];
  ncclWindow_t window = nullptr;
  ncclCommWindowRegister(comm_, buffer, 32, &window, 0);
  EXPECT_FALSE(pinned(Pin::kWindowPointer));
  void* address = nullptr;
  ncclGetPeerDevicePointer(window, 0, 0, &address);  // names no communicator
  EXPECT_TRUE(pinned(Pin::kWindowPointer));
  ncclCommWindowDeregister(comm_, window);
}

TEST(RegistrationListTest, DuplicateRealValueGetsANumberOfRewires) {
  RegistrationList list;
  Registration r;
  r.kind = RegistrationKind::kWindow;
  r.handle = 4096;
  r.index = list.NextIndex();
  EXPECT_EQ(4096u, list.Add(r));
  r.index = list.NextIndex();
  const uint64_t other = list.Add(r);
  EXPECT_NE(4096u, other);
  EXPECT_EQ(1u, list.Find(RegistrationKind::kWindow, other)->index);
  EXPECT_EQ(0u, list.Find(RegistrationKind::kWindow, 4096)->index);
  EXPECT_FALSE(list.Find(RegistrationKind::kBuffer, 4096).has_value());
  EXPECT_TRUE(list.Remove(RegistrationKind::kWindow, 4096));
  EXPECT_FALSE(list.Remove(RegistrationKind::kWindow, 4096));
}

}  // namespace
}  // namespace rewire::shim
