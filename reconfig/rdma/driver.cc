// The driver over libibverbs, and the errors of every driver; see driver.h.
#include "reconfig/rdma/driver.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/rdma/verbs_device.h"
#include "reconfig/rdma/verbs_library.h"

namespace rewire::rdma {
namespace {

class DeviceList {
 public:
  explicit DeviceList(const VerbsLibrary& library)
      : library_(library), list_(library.GetDeviceList(&count_)), error_(errno) {}
  ~DeviceList() {
    if (list_ != nullptr) library_.FreeDeviceList(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  [[nodiscard]] absl::Status status() const {
    if (list_ != nullptr && count_ > 0) return absl::OkStatus();
    // ENOSYS: a kernel without RDMA has no devices.
    if (list_ == nullptr && error_ != ENOSYS) {
      return CallError("ibv_get_device_list", "this machine", error_);
    }
    return absl::NotFoundError("this machine has no RDMA device");
  }
  [[nodiscard]] std::span<ibv_device*> devices() const {
    return {list_, static_cast<size_t>(count_)};
  }

 private:
  const VerbsLibrary& library_;
  int count_ = 0;
  ibv_device** const list_;
  const int error_;
};

class VerbsDriver : public Driver {
 public:
  explicit VerbsDriver(std::shared_ptr<const VerbsLibrary> library)
      : library_(std::move(library)) {}

  absl::StatusOr<std::vector<DeviceInfo>> Devices() override {
    const DeviceList list(*library_);
    REWIRE_RETURN_IF_ERROR(list.status());
    std::vector<DeviceInfo> infos;
    absl::Status failure;
    for (ibv_device* device : list.devices()) {
      auto opened = VerbsDevice::Open(library_, device);
      if (opened.ok()) {
        infos.push_back((*opened)->info());
        continue;
      }
      REWIRE_WARN("rdma: a device is not used: %s", opened.status().ToString().c_str());
      failure = opened.status();
    }
    if (infos.empty()) return failure;
    return infos;
  }

  absl::StatusOr<std::shared_ptr<Device>> Open(std::string_view name) override {
    const DeviceList list(*library_);
    REWIRE_RETURN_IF_ERROR(list.status());
    for (ibv_device* device : list.devices()) {
      if (library_->GetDeviceName(device) != name) continue;
      REWIRE_ASSIGN_OR_RETURN(std::shared_ptr<Device> opened, VerbsDevice::Open(library_, device));
      return opened;
    }
    return absl::NotFoundError(
        absl::StrCat("open RDMA device ", std::string(name), ": no such device"));
  }

 private:
  const std::shared_ptr<const VerbsLibrary> library_;
};

}  // namespace

absl::Status CallError(std::string_view call, std::string_view device, int error) {
  // A failed device (EIO, ENODEV) is Unavailable, unlike in ErrnoToStatusCode(). Drivers return
  // EOPNOTSUPP or ENOSYS for unsupported calls.
  const absl::StatusCode code = error == EOPNOTSUPP || error == ENOSYS
                                    ? absl::StatusCode::kUnimplemented
                                : error == ENOMEM ? absl::StatusCode::kResourceExhausted
                                : error == EIO || error == ENODEV ? absl::StatusCode::kUnavailable
                                                                  : absl::ErrnoToStatusCode(error);
  return {code, absl::StrCat(std::string(call), " on ", std::string(device), ": ",
                             std::generic_category().message(error), " (errno ", error, ")")};
}

absl::StatusOr<std::unique_ptr<Driver>> LoadVerbs(const std::string& library) {
  auto loaded = std::make_shared<VerbsLibrary>();
  REWIRE_RETURN_IF_ERROR(VerbsLibrary::Load(library, loaded.get()));
  // ibv_fork_init() must be the first call. On an old kernel, a fork() without ibv_fork_init() can
  // separate the process's pages from those that the device uses.
  if (const int error = loaded->ForkInit(); error != 0) {
    REWIRE_WARN(
        "rdma: ibv_fork_init failed (errno %d): a child process may damage registered memory",
        error);
  }
  return std::unique_ptr<Driver>(std::make_unique<VerbsDriver>(std::move(loaded)));
}

}  // namespace rewire::rdma
