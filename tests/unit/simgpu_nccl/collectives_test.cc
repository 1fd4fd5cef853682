// Every collective with every type and operator, sizes around the edges, in and out of place,
// against a reference computed here in double precision.

#include <cmath>
#include <cstring>

#include "tests/simgpu/nccl/narrow_float.h"
#include "tests/simgpu/nccl/reduction.h"
#include "tests/unit/simgpu_nccl/world.h"

namespace simnccl {
namespace {

// Values that every type represents exactly, also in sums and products over four ranks.
double Value(int rank, size_t i) { return (rank + i) % 2 == 0 ? 1 : 2; }

void Write(ncclDataType_t type, void* data, size_t i, double v) {
  switch (type) {
    case ncclInt8:
      static_cast<int8_t*>(data)[i] = static_cast<int8_t>(v);
      break;
    case ncclUint8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(v);
      break;
    case ncclInt32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(v);
      break;
    case ncclUint32:
      static_cast<uint32_t*>(data)[i] = static_cast<uint32_t>(v);
      break;
    case ncclInt64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(v);
      break;
    case ncclUint64:
      static_cast<uint64_t*>(data)[i] = static_cast<uint64_t>(v);
      break;
    case ncclFloat16:
      static_cast<uint16_t*>(data)[i] =
          static_cast<uint16_t>(HalfFormat::FromFloat(static_cast<float>(v)));
      break;
    case ncclFloat32:
      static_cast<float*>(data)[i] = static_cast<float>(v);
      break;
    case ncclFloat64:
      static_cast<double*>(data)[i] = v;
      break;
    case ncclBfloat16:
      static_cast<uint16_t*>(data)[i] =
          static_cast<uint16_t>(Bfloat16Format::FromFloat(static_cast<float>(v)));
      break;
    case ncclFloat8e4m3:
      static_cast<uint8_t*>(data)[i] =
          static_cast<uint8_t>(Float8E4M3Format::FromFloat(static_cast<float>(v)));
      break;
    default:
      static_cast<uint8_t*>(data)[i] =
          static_cast<uint8_t>(Float8E5M2Format::FromFloat(static_cast<float>(v)));
  }
}

double Read(ncclDataType_t type, const void* data, size_t i) {
  switch (type) {
    case ncclInt8:
      return static_cast<const int8_t*>(data)[i];
    case ncclUint8:
      return static_cast<const uint8_t*>(data)[i];
    case ncclInt32:
      return static_cast<const int32_t*>(data)[i];
    case ncclUint32:
      return static_cast<const uint32_t*>(data)[i];
    case ncclInt64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case ncclUint64:
      return static_cast<double>(static_cast<const uint64_t*>(data)[i]);
    case ncclFloat16:
      return HalfFormat::ToFloat(static_cast<const uint16_t*>(data)[i]);
    case ncclFloat32:
      return static_cast<const float*>(data)[i];
    case ncclFloat64:
      return static_cast<const double*>(data)[i];
    case ncclBfloat16:
      return Bfloat16Format::ToFloat(static_cast<const uint16_t*>(data)[i]);
    case ncclFloat8e4m3:
      return Float8E4M3Format::ToFloat(static_cast<const uint8_t*>(data)[i]);
    default:
      return Float8E5M2Format::ToFloat(static_cast<const uint8_t*>(data)[i]);
  }
}

double Reduced(ncclDataType_t type, ncclRedOp_t op, int n, const std::function<double(int)>& of) {
  double v = of(0);
  for (int r = 1; r < n; ++r) {
    switch (op) {
      case ncclProd:
        v *= of(r);
        break;
      case ncclMax:
        v = std::max(v, of(r));
        break;
      case ncclMin:
        v = std::min(v, of(r));
        break;
      default:
        v += of(r);
    }
  }
  if (op == ncclAvg) v = type <= ncclUint64 ? std::trunc(v / n) : v / n;
  return v;
}

// Fills `count` elements of rank r, whose first has index `first`.
void Fill(ncclDataType_t type, void* data, int r, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) Write(type, data, i, Value(r, first + i));
}

struct Case {
  int n;
  ncclDataType_t type;
  ncclRedOp_t op;
  size_t count;
  bool in_place;
};

class Checker {
 public:
  Checker(const Case& c, int rank, ncclComm_t comm, Rank& gpu)
      : c_(c), r_(rank), comm_(comm), gpu_(gpu), e_(ElementBytes(c.type)) {
    send_ = gpu.Alloc(c.count * e_ * c.n);
    recv_ = gpu.Alloc(c.count * e_ * c.n);
  }

  void All() {
    AllReduce();
    Reduce();
    ReduceScatter();
    if (c_.op != ncclSum) return;
    Broadcast();
    AllGather();
    if (!c_.in_place) AlltoAll();
    Gather();
    Scatter();
  }

 private:
  void Poison(void* data, size_t count) { std::memset(data, 0x55, count * e_); }
  void Expect(const char* what, const void* data, size_t count,
              const std::function<double(size_t)>& of) {
    ASSERT_TRUE(gpu_.Sync()) << what;
    for (size_t i = 0; i < count; ++i) {
      const double got = Read(c_.type, data, i);
      ASSERT_EQ(of(i), got) << what << " rank " << r_ << " of " << c_.n << " type " << c_.type
                            << " op " << c_.op << " count " << c_.count << " at " << i;
    }
  }
  double Sum(size_t i) const {
    return Reduced(c_.type, c_.op, c_.n, [&](int r) { return Value(r, i); });
  }

  void AllReduce() {
    void* out = c_.in_place ? send_ : recv_;
    Fill(c_.type, send_, r_, 0, c_.count);
    if (!c_.in_place) Poison(recv_, c_.count);
    ASSERT_NCCL(ncclAllReduce(send_, out, c_.count, c_.type, c_.op, comm_, gpu_.stream()));
    Expect("AllReduce", out, c_.count, [&](size_t i) { return Sum(i); });
  }
  void Reduce() {
    const int root = c_.n - 1;
    void* out = c_.in_place ? send_ : recv_;
    Fill(c_.type, send_, r_, 0, c_.count);
    ASSERT_NCCL(ncclReduce(send_, r_ == root ? out : nullptr, c_.count, c_.type, c_.op, root, comm_,
                           gpu_.stream()));
    if (r_ == root) {
      Expect("Reduce", out, c_.count, [&](size_t i) { return Sum(i); });
    } else {
      Expect("Reduce, input", send_, c_.count, [&](size_t i) { return Value(r_, i); });
    }
  }
  void ReduceScatter() {
    Fill(c_.type, send_, r_, 0, c_.count * c_.n);
    void* out = c_.in_place ? static_cast<char*>(send_) + r_ * c_.count * e_ : recv_;
    ASSERT_NCCL(ncclReduceScatter(send_, out, c_.count, c_.type, c_.op, comm_, gpu_.stream()));
    Expect("ReduceScatter", out, c_.count, [&](size_t i) { return Sum(r_ * c_.count + i); });
  }
  void Broadcast() {
    void* out = c_.in_place ? send_ : recv_;
    for (int root = 0; root < c_.n; ++root) {
      Fill(c_.type, send_, r_, 0, c_.count);
      if (c_.in_place) {
        ASSERT_NCCL(ncclBcast(send_, c_.count, c_.type, root, comm_, gpu_.stream()));
      } else {
        ASSERT_NCCL(ncclBroadcast(r_ == root ? send_ : nullptr, recv_, c_.count, c_.type, root,
                                  comm_, gpu_.stream()));
      }
      Expect("Broadcast", out, c_.count, [&](size_t i) { return Value(root, i); });
    }
  }
  void AllGather() {
    Poison(recv_, c_.count * c_.n);
    void* in = c_.in_place ? static_cast<char*>(recv_) + r_ * c_.count * e_ : send_;
    Fill(c_.type, in, r_, 0, c_.count);
    ASSERT_NCCL(ncclAllGather(in, recv_, c_.count, c_.type, comm_, gpu_.stream()));
    Expect("AllGather", recv_, c_.count * c_.n,
           [&](size_t i) { return Value(static_cast<int>(i / c_.count), i % c_.count); });
  }
  void AlltoAll() {
    Fill(c_.type, send_, r_, 0, c_.count * c_.n);
    Poison(recv_, c_.count * c_.n);
    ASSERT_NCCL(ncclAlltoAll(send_, recv_, c_.count, c_.type, comm_, gpu_.stream()));
    Expect("AlltoAll", recv_, c_.count * c_.n, [&](size_t i) {
      return Value(static_cast<int>(i / c_.count), r_ * c_.count + i % c_.count);
    });
  }
  void Gather() {
    Poison(recv_, c_.count * c_.n);
    void* in = c_.in_place && r_ == 0 ? recv_ : send_;
    Fill(c_.type, in, r_, 0, c_.count);
    ASSERT_NCCL(ncclGather(in, recv_, c_.count, c_.type, 0, comm_, gpu_.stream()));
    Expect("Gather", recv_, r_ == 0 ? c_.count * c_.n : 0,
           [&](size_t i) { return Value(static_cast<int>(i / c_.count), i % c_.count); });
  }
  void Scatter() {
    Fill(c_.type, send_, r_, 0, c_.count * c_.n);
    ASSERT_NCCL(ncclScatter(send_, recv_, c_.count, c_.type, 0, comm_, gpu_.stream()));
    Expect("Scatter", recv_, c_.count, [&](size_t i) { return Value(0, r_ * c_.count + i); });
  }

  const Case c_;
  const int r_;
  const ncclComm_t comm_;
  Rank& gpu_;
  const size_t e_;
  void* send_;
  void* recv_;
};

void CheckAll(int n, const std::vector<size_t>& counts, const std::vector<ncclDataType_t>& types,
              const std::vector<ncclRedOp_t>& ops) {
  OnRanks(n, [&](int r, ncclComm_t comm, Rank&) {
    for (const ncclDataType_t type : types) {
      for (const ncclRedOp_t op : ops) {
        for (const size_t count : counts) {
          for (const bool in_place : {false, true}) {
            Rank gpu(r);
            Checker({n, type, op, count, in_place}, r, comm, gpu).All();
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  });
}

std::vector<ncclDataType_t> AllTypes() {
  std::vector<ncclDataType_t> types;
  for (uint32_t t = 0; t < ncclNumTypes; ++t) types.push_back(static_cast<ncclDataType_t>(t));
  return types;
}

const std::vector<ncclRedOp_t> kAllOps = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

TEST(Collectives, AllTypesAndOperatorsOnFourRanks) {
  CheckAll(4, {0, 1, 3, 1000}, AllTypes(), kAllOps);
}

TEST(Collectives, OneRank) { CheckAll(1, {0, 1, 1000}, {ncclInt32, ncclBfloat16}, kAllOps); }

TEST(Collectives, TwoAndThreeRanks) {
  CheckAll(2, {0, 3, 70'000}, {ncclFloat32, ncclUint8}, {ncclSum, ncclMax});
  CheckAll(3, {0, 2, 70'000}, {ncclInt64}, {ncclSum, ncclMin});
}

TEST(Collectives, LargerThanAllSlots) { CheckAll(4, {(1 << 20) + 1}, {ncclFloat32}, {ncclSum}); }

TEST(Collectives, FloatSumsDoNotDependOnTiming) {
  // Sums that round differently in different orders: every run and every rank must have the same
  // bits.
  std::vector<std::vector<float>> results(3);
  OnRanks(3, [&](int r, ncclComm_t comm, Rank& gpu) {
    std::vector<float> input(50'000);
    for (size_t i = 0; i < input.size(); ++i)
      input[i] = std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(r)) * 1e3f;
    float* in = gpu.Put(input);
    auto* out = static_cast<float*>(gpu.Alloc(input.size() * 4));
    for (int round = 0; round < 5; ++round) {
      ASSERT_NCCL(ncclAllReduce(in, out, input.size(), ncclFloat32, ncclSum, comm, gpu.stream()));
      ASSERT_TRUE(gpu.Sync());
      const std::vector<float> now(out, out + input.size());
      if (round > 0) {
        ASSERT_EQ(0, std::memcmp(now.data(), results[r].data(), now.size() * 4));
      }
      results[r] = now;
    }
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Collectives, PreMulSum) {
  OnRanks(3, [&](int r, ncclComm_t comm, Rank& gpu) {
    const float factor = 0.5f;
    float* device_factor = gpu.Put<float>({4.0f});
    float* data = gpu.Put<float>({static_cast<float>(r + 1), 2.0f});
    ncclRedOp_t half;
    ncclRedOp_t four;
    ASSERT_NCCL(ncclRedOpCreatePreMulSum(&half, const_cast<float*>(&factor), ncclFloat32,
                                         ncclScalarHostImmediate, comm));
    ASSERT_NCCL(
        ncclRedOpCreatePreMulSum(&four, device_factor, ncclFloat32, ncclScalarDevice, comm));
    ASSERT_NCCL(ncclAllReduce(data, data, 2, ncclFloat32, half, comm, gpu.stream()));
    ASSERT_NCCL(ncclAllReduce(data, data, 2, ncclFloat32, four, comm, gpu.stream()));
    ASSERT_TRUE(gpu.Sync());
    EXPECT_EQ(36.0f, data[0]);  // (1+2+3)/2 = 3 on each of three ranks, times four.
    EXPECT_EQ(36.0f, data[1]);
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(data, data, 2, ncclFloat64, half, comm, gpu.stream()));
    ASSERT_NCCL(ncclRedOpDestroy(half, comm));
    EXPECT_EQ(ncclInvalidArgument, ncclRedOpDestroy(half, comm));
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(data, data, 2, ncclFloat32, half, comm, gpu.stream()));
    ASSERT_NCCL(ncclRedOpDestroy(four, comm));
  });
}

TEST(Collectives, BadArgumentsAreRefused) {
  OnRanks(1, [&](int, ncclComm_t comm, Rank& gpu) {
    float* data = gpu.Put<float>({1});
    const auto reduce = [&](void* d, int type, int op, ncclComm_t c) {
      return ncclAllReduce(d, d, 1, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op),
                           c, gpu.stream());
    };
    EXPECT_EQ(ncclInvalidArgument, reduce(nullptr, ncclFloat32, ncclSum, comm));
    EXPECT_EQ(ncclInvalidArgument, reduce(data, 12, ncclSum, comm));
    EXPECT_EQ(ncclInvalidArgument, reduce(data, ncclFloat32, 5, comm));
    EXPECT_EQ(ncclInvalidArgument, reduce(data, ncclFloat32, ncclSum, nullptr));
    char not_a_comm[4096] = {};
    EXPECT_EQ(ncclInvalidArgument,
              reduce(data, ncclFloat32, ncclSum, reinterpret_cast<ncclComm_t>(not_a_comm)));
    EXPECT_STRNE("", ncclGetLastError(nullptr));
    EXPECT_EQ(ncclInvalidArgument,
              ncclBroadcast(data, data, 1, ncclFloat32, 1, comm, gpu.stream()));
    EXPECT_EQ(ncclInvalidArgument, ncclSend(data, 1, ncclFloat32, 1, comm, gpu.stream()));
    EXPECT_EQ(ncclInvalidUsage, ncclSend(data, 1, ncclFloat32, 0, comm, gpu.stream()));
  });
}

}  // namespace
}  // namespace simnccl
