#include "reconfig/moe/exec/node_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {

namespace {

// Postings of the last kBoards rounds are kept. A process that is kBoards rounds behind another
// cannot plan what the other process has planned.
constexpr uint64_t kBoards = 4;

uint64_t BoardOf(uint64_t round) { return round / 2 % kBoards; }

}  // namespace

// The part of the page that belongs to one process.
struct NodePage::Block {
  struct Board {
    std::atomic<uint64_t> round;  // the round of the posting, written last
    std::atomic<uint32_t> copies;
    std::atomic<uint32_t> row, kib, start;  // speeds
    std::atomic<uint32_t> stay;
    std::atomic<uint32_t> held[kMaxSlots];  // expert whose weights are in the slot
    std::atomic<uint64_t> taken[kMaxSlots];
    std::atomic<uint32_t> counts[kMaxExperts];  // tokens, and kDynamic in the highest bit
  };
  std::atomic<uint32_t> stage;  // 1: entered; 1 + n: has passed stage n
  std::atomic<uint32_t> failed;
  std::atomic<uint32_t> wakeups;
  std::atomic<uint64_t> word;  // round, closed bit, declined and taken slots
  std::atomic<uint64_t> last_used;
  std::atomic<uint64_t> taken[kMaxSlots];  // last round in which the slot was taken
  uint64_t fingerprint;
  CUipcMemHandle memory;
  Board boards[kBoards];
};

struct NodePage::Page {
  Block blocks[kMaxRanks];
};

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
// A word has 31 bits of the round, 1 closed bit, 16 bits for declined slots and 16 for taken slots.
constexpr uint64_t kClosed = uint64_t{1} << 32;
constexpr uint32_t kDeclinedShift = 16;
constexpr uint64_t kTakenMask = (uint64_t{1} << kMaxSlots) - 1;
static_assert(kMaxSlots <= kDeclinedShift);
constexpr uint32_t kDynamic = uint32_t{1} << 31;
constexpr Duration kLook = milliseconds(20);  // interval of checks that the processes are alive

uint64_t RoundOf(uint64_t word) { return word >> 33; }
uint64_t Short(uint64_t round) { return round & 0x7FFFFFFF; }

// A process takes two locks of the file: `Entering` before it first writes its block, and `Present`
// after that. The process holds both until it ends. Children do not inherit POSIX locks.
off_t Entering(uint32_t rank) { return 2 * static_cast<off_t>(rank); }
off_t Present(uint32_t rank) { return 2 * static_cast<off_t>(rank) + 1; }

bool TryLock(int fd, off_t byte) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_SETLK, &lock) == 0;
}

bool IsLockedByOther(int fd, off_t byte) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string PathOf(const NodeGroup& group) {
  return absl::StrCat("/dev/shm/rewire-moe-", ::geteuid(), "-", group.name);
}

absl::Status Failed(const std::string& path, const char* call) {
  return absl::UnavailableError(absl::StrCat(path, ": ", call, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NodePage>> NodePage::Join(const NodeGroup& group, const Shape& shape,
                                                         const CUipcMemHandle& memory,
                                                         Time deadline) {
  const std::string path = PathOf(group);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return Failed(path, "open");
  struct stat seen {};
  if (::fstat(file.get(), &seen) != 0) return Failed(path, "fstat");
  if (!S_ISREG(seen.st_mode) || seen.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, ": owner=", seen.st_uid, ": must be a regular file of user ", ::geteuid()));
  }
  // Reserve the memory now: otherwise the first access without free memory kills the process.
  if (const int error = ::posix_fallocate(file.get(), 0, sizeof(Page)); error != 0) {
    errno = error;
    return Failed(path, "posix_fallocate");
  }
  void* mapped = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return Failed(path, "mmap");
  std::unique_ptr<NodePage> page(new NodePage(group, std::move(file), static_cast<Page*>(mapped)));
  REWIRE_RETURN_IF_ERROR(page->Enter(shape, memory));
  const absl::Status met = page->Meet(0, deadline);
  ::unlink(path.c_str());  // all members have the file mapped; later processes must not find it
  if (met.ok()) return page;
  page->Fail();
  return met;
}

NodePage::NodePage(const NodeGroup& group, UniqueFd file, Page* page)
    : group_(group), file_(std::move(file)), page_(page) {}

NodePage::~NodePage() { ::munmap(page_, sizeof(Page)); }

absl::Status NodePage::Enter(const Shape& shape, const CUipcMemHandle& memory) {
  if (!TryLock(file_.get(), Entering(group_.rank))) {
    return absl::AlreadyExistsError(absl::StrCat("join ", group_.name, ": rank=", group_.rank,
                                                 ": another process has this rank"));
  }
  Block& block = own();
  // A dead process may have left its state here. The wake-up counter is kept for its waiters.
  block.stage = 0;
  block.failed = 0;
  block.word = 0;
  block.last_used = 0;
  for (std::atomic<uint64_t>& taken : block.taken) taken = 0;
  for (Block::Board& board : block.boards) board.round = 0;
  block.fingerprint = Fingerprint(shape, group_.ranks);
  block.memory = memory;
  if (!TryLock(file_.get(), Present(group_.rank))) return Failed(group_.name, "lock");
  block.stage = 1;
  WakeAll();
  return absl::OkStatus();
}

NodePage::Block& NodePage::own() const { return page_->blocks[group_.rank]; }

CUipcMemHandle NodePage::memory(uint32_t rank) const { return page_->blocks[rank].memory; }

bool NodePage::IsAlive(uint32_t rank) const {
  return rank == group_.rank || IsLockedByOther(file_.get(), Present(rank));
}

std::optional<uint32_t> NodePage::FindLost() const {
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (!IsAlive(rank) || page_->blocks[rank].failed != 0) return rank;
  }
  return std::nullopt;
}

void NodePage::Fail() {
  own().failed = 1;
  WakeAll();
}

absl::Status NodePage::CheckOther(uint32_t rank) const {
  const Block& other = page_->blocks[rank];
  if (other.stage == 0) return absl::OkStatus();  // the process has not entered yet
  if (other.failed != 0) {
    return absl::UnavailableError(absl::StrCat("rank ", rank, " of ", group_.name, " has failed"));
  }
  if (other.fingerprint != own().fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " of ", group_.name,
                     ": its shape or its number of ranks differs from this rank's"));
  }
  return absl::OkStatus();
}

absl::Status NodePage::Meet(uint32_t stage, Time deadline) {
  own().stage = 1 + stage;
  WakeAll();
  while (true) {
    const uint32_t seen = wakeups();
    std::optional<uint32_t> missing;
    for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
      REWIRE_RETURN_IF_ERROR(CheckOther(rank));
      // A process without its lock left its stage before it ended.
      if (!IsAlive(rank) || page_->blocks[rank].stage < 1 + stage) missing = rank;
    }
    if (!missing) return absl::OkStatus();
    if (stage > 0 && !IsAlive(*missing)) {
      return absl::UnavailableError(
          absl::StrCat("rank ", *missing, " of ", group_.name, " has ended"));
    }
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("meet in ", group_.name, ": rank ", *missing,
                                                      " did not arrive in time (meeting_ms)"));
    }
    WaitForWakeup(seen, std::min(deadline, Now() + kLook));
  }
}

void NodePage::Post(uint64_t round, const Posting& posting) {
  Block::Board& board = own().boards[BoardOf(round)];
  // A reader of a value of another round finds the change when it checks `round` again.
  board.round.store(0, std::memory_order_relaxed);
  board.copies.store(posting.copies, std::memory_order_release);
  board.row.store(posting.speeds.row, std::memory_order_release);
  board.kib.store(posting.speeds.kib, std::memory_order_release);
  board.start.store(posting.speeds.start, std::memory_order_release);
  for (size_t i = 0; i < posting.tokens.size(); ++i) {
    board.counts[i].store(posting.tokens[i] | (posting.dynamic[i] != 0 ? kDynamic : 0),
                          std::memory_order_release);
  }
  board.stay.store(posting.stay ? 1 : 0, std::memory_order_release);
  for (size_t i = 0; i < posting.slots.size(); ++i) {
    board.held[i].store(posting.slots[i].expert, std::memory_order_release);
    board.taken[i].store(posting.slots[i].taken, std::memory_order_release);
  }
  board.round.store(round, std::memory_order_release);
  WakeAll();
}

void NodePage::Open(uint64_t round) {
  own().word = Short(round) << 33;
  WakeAll();
}

bool NodePage::Read(uint64_t round, std::vector<Posting>* postings) const {
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    const Block::Board& board = page_->blocks[rank].boards[BoardOf(round)];
    if (board.round.load(std::memory_order_acquire) != round) return false;
    Posting& posting = (*postings)[rank];
    posting.copies = board.copies.load(std::memory_order_acquire);
    posting.speeds = {board.row.load(std::memory_order_acquire),
                      board.kib.load(std::memory_order_acquire),
                      board.start.load(std::memory_order_acquire)};
    for (size_t i = 0; i < posting.tokens.size(); ++i) {
      const uint32_t count = board.counts[i].load(std::memory_order_acquire);
      posting.tokens[i] = count & ~kDynamic;
      posting.dynamic[i] = count >= kDynamic ? 1 : 0;
    }
    posting.stay = board.stay.load(std::memory_order_acquire) != 0;
    for (size_t i = 0; i < posting.slots.size(); ++i) {
      posting.slots[i] = {board.held[i].load(std::memory_order_acquire),
                          board.taken[i].load(std::memory_order_acquire)};
    }
    // Has a later round's posting overwritten the values meanwhile?
    if (board.round.load(std::memory_order_relaxed) != round) return false;
  }
  return true;
}

bool NodePage::IsAt(uint32_t helper, uint64_t round) const {
  return RoundOf(page_->blocks[helper].word) == Short(round);
}

bool NodePage::Mark(uint32_t helper, uint64_t round, uint64_t bit) {
  std::atomic<uint64_t>& word = page_->blocks[helper].word;
  uint64_t seen = word;
  do {
    if (RoundOf(seen) != Short(round) || (seen & (kClosed | bit)) != 0) return false;
  } while (!word.compare_exchange_weak(seen, seen | bit));
  Wake(helper);
  return true;
}

bool NodePage::Take(uint32_t helper, uint64_t round, uint32_t slot) {
  return Mark(helper, round, uint64_t{1} << slot);
}

void NodePage::Decline(uint32_t helper, uint64_t round, uint32_t slot) {
  (void)Mark(helper, round, uint64_t{1} << (slot + kDeclinedShift));
}

uint32_t NodePage::Settled() const {
  const uint64_t word = own().word;
  return static_cast<uint32_t>((word | word >> kDeclinedShift) & kTakenMask);
}

uint32_t NodePage::Close(uint64_t round) {
  if (RoundOf(own().word) != Short(round)) {
    own().word = Short(round) << 33 | kClosed;  // never opened
    return 0;
  }
  const auto taken = static_cast<uint32_t>(own().word.fetch_or(kClosed) & kTakenMask);
  if (taken != 0) own().last_used = round;
  for (uint32_t slot = 0; slot < kMaxSlots; ++slot) {
    if ((taken >> slot & 1) != 0) own().taken[slot] = round;
  }
  return taken;
}

uint64_t NodePage::LastTaken(uint32_t helper, uint32_t slot) const {
  return page_->blocks[helper].taken[slot];
}

uint64_t NodePage::LastUsed(uint32_t rank) const { return page_->blocks[rank].last_used; }

uint32_t NodePage::wakeups() const { return own().wakeups; }

void NodePage::WaitForWakeup(uint32_t seen, Time deadline) const {
  const Duration left = deadline - Now();
  if (left <= Duration::zero()) return;
  const int64_t ns = ToNanoseconds(left);
  const timespec patience{ns / 1000000000, ns % 1000000000};
  ::syscall(SYS_futex, &own().wakeups, FUTEX_WAIT, seen, &patience, nullptr, 0);
}

void NodePage::Wake(uint32_t rank) {
  page_->blocks[rank].wakeups.fetch_add(1);
  ::syscall(SYS_futex, &page_->blocks[rank].wakeups, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void NodePage::WakeOwn() { Wake(group_.rank); }

void NodePage::WakeAll() {
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) Wake(rank);
}

}  // namespace rewire::moe
