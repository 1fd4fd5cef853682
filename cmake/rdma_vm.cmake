# Tests that run in the virtual machine of tests/rdma_vm, which has RDMA devices.

set(REWIRE_VM ${CMAKE_SOURCE_DIR}/tests/rdma_vm/rdma_vm)

# rewire_vm_test(NAME COMMAND command... [DEVICES n] [TIMEOUT s]): a test that boots the machine
# with n devices (2) and runs the command in it for at most s seconds (120). Booting has its own
# deadline. The test is skipped if the machine cannot run, and left out of builds with sanitizers.
function(rewire_vm_test name)
  cmake_parse_arguments(ARG "" "DEVICES;TIMEOUT" "COMMAND" ${ARGN})
  if(REWIRE_SANITIZE)
    return()
  endif()
  if(NOT ARG_DEVICES)
    set(ARG_DEVICES 2)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${REWIRE_VM} run --devices ${ARG_DEVICES}
           --timeout ${ARG_TIMEOUT} -- ${ARG_COMMAND})
  math(EXPR timeout "${ARG_TIMEOUT} + 210")
  set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED rdma_vm SKIP_RETURN_CODE 77
                       RESOURCE_LOCK rdma_vm PROCESSORS 2 TIMEOUT ${timeout} LABELS rdma_vm)
endfunction()
