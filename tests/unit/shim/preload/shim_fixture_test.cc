#include "tests/unit/shim/preload/shim_fixture.h"

namespace rewire::shim {

std::vector<std::string> ShimTest::notes;
std::function<ncclResult_t(VirtualCommunicator*, CallSite)> ShimTest::at_cut;
int ShimTest::created_gives = 0;
const char* ShimTest::last_error = nullptr;
std::function<void(VirtualCommunicator*)> ShimTest::on_created;
uint64_t ShimTest::free_memory = 0;

namespace {

struct Notes : ShimTest {
  void TestBody() override {}
  static int Created(VirtualCommunicator* comm, ncclResult_t* result) noexcept {
    notes.emplace_back("created");
    if (on_created) on_created(comm);
    *result = ncclSuccess;
    return created_gives;
  }
  static void Closing(VirtualCommunicator* /*comm*/, int aborting) noexcept {
    notes.push_back("closing " + std::to_string(aborting));
  }
  static ncclResult_t AtCut(VirtualCommunicator* comm, CallSite site) noexcept {
    notes.push_back("at " + std::to_string(comm->issued.load()) + " depth " +
                    std::to_string(site.group_depth));
    if (at_cut) return at_cut(comm, site);
    comm->stop_at.store(kNoCut);
    return ncclSuccess;
  }
  static void BeforeCut(VirtualCommunicator* comm, CallSite site) noexcept {
    notes.push_back("before " + std::to_string(comm->issued.load()) + " depth " +
                    std::to_string(site.group_depth) + " stream " +
                    std::to_string(reinterpret_cast<uintptr_t>(site.stream) >> 4));
  }
  static uint64_t FreeMemory(VirtualCommunicator* /*comm*/) noexcept { return free_memory; }
  static void TookMemory(VirtualCommunicator* comm, uint64_t free_before) noexcept {
    notes.push_back("took " + std::to_string(free_before - free_memory) + " at " +
                    std::to_string(comm->issued.load()));
  }
  static void Pinned(VirtualCommunicator* comm) noexcept {
    notes.push_back("pinned " + std::to_string(comm->pins.load()));
  }
  static ncclResult_t AwaitFirst(VirtualCommunicator* /*comm*/) noexcept {
    notes.push_back("await first");
    return ncclSuccess;
  }
  static const char* LastError(VirtualCommunicator* comm) noexcept {
    return comm != nullptr ? ShimTest::last_error : nullptr;
  }
};

const CoreTable kCore = {kCoreAbiVersion,  Notes::Created,    Notes::Closing,    Notes::AtCut,
                         Notes::BeforeCut, Notes::FreeMemory, Notes::TookMemory, Notes::LastError,
                         Notes::Pinned,    Notes::AwaitFirst};

}  // namespace

ShimTest::ShimTest() {
  NoopControl* noop = NoopNccl();
  noop->effects = true;
  noop->record = false;
  noop->result = ncclSuccess;
  noop->async_error = ncclSuccess;
  noop->on_call = nullptr;
  noop->late_children = false;
  notes.clear();
  at_cut = nullptr;
  on_created = nullptr;
  free_memory = 0;
  created_gives = 0;
  last_error = nullptr;
}

ShimTest::~ShimTest() { SetCore(nullptr); }

void ShimTest::UseCore() { SetCore(&kCore); }

ncclComm_t ShimTest::Make(int ranks, int rank, ncclConfig_t* config) {
  ncclUniqueId id;
  EXPECT_EQ(ncclSuccess, ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclSuccess, config == nullptr
                             ? ncclCommInitRank(&comm, ranks, id, rank)
                             : ncclCommInitRankConfig(&comm, ranks, id, rank, config));
  return comm;
}

Generation* ShimTest::Swap(ncclComm_t comm, uint64_t epoch) {
  const Generation* now = V(comm)->current.load();
  Generation* next = Services()->new_generation(epoch, now->ranks, now->rank);
  EXPECT_EQ(ncclSuccess, pncclCommInitRank(&next->real, now->ranks, ncclUniqueId{}, now->rank));
  EXPECT_EQ(ncclSuccess, Services()->replay(V(comm), next));
  return Services()->publish(V(comm), next);
}

void ShimTest::Retire(Generation* generation) {
  EXPECT_TRUE(Services()->quiesce(generation, 10000));
  pncclCommDestroy(generation->Real());
  Services()->free_generation(generation);
}

}  // namespace rewire::shim
