// Opens plugin libraries by NCCL's rules, and gives the plugin ABIs of an NCCL version.
// Thread-safe.
#pragma once

#include <string>

namespace simnccl {

// Opens a library by NCCL's rules: the name itself, then lib<kind>-<name>.so, or the program for a
// prefix of STATIC_PLUGIN. Null if there is none.
void* OpenPlugin(const std::string& name, const char* prefix);
void ClosePlugin(void* library);

struct AbiRange {
  int oldest;
  int newest;
};
// The accepted versions of ncclNetPlugin_vN and ncclTunerPlugin_vN.
AbiRange NetVersions(int nccl_version);
AbiRange TunerVersions(int nccl_version);

}  // namespace simnccl
