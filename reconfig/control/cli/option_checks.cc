#include "reconfig/control/cli/option_checks.h"

#include <cstdint>
#include <string>

#include "reconfig/control/agent/metrics_server.h"
#include "reconfig/control/launcher/job_directory.h"

namespace rewire::control {

CLI::Validator NotEmpty() {
  return {[](const std::string& value) { return value.empty() ? "must not be empty" : ""; }, ""};
}

CLI::Validator MemberNumber() { return CLI::Range(uint64_t{0}, uint64_t{UINT32_MAX}); }

CLI::Validator JobName() {
  return {[](const std::string& value) { return std::string(CheckJobName(value).message()); }, ""};
}

CLI::Validator MetricsAddress() {
  return {[](const std::string& value) {
            const absl::Status checked = MetricsServer::CheckAddress(value);
            return std::string(checked.message());
          },
          ""};
}

}  // namespace rewire::control
