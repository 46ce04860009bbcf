# Debian packages: assay, libassay-c0, libassay-dev.   cmake --preset package && cmake --build --preset package && cpack --preset package
# The preset installs below /usr, so that libraries go where Debian has them for this processor.
set(ASSAY_PACKAGE_MAINTAINER "" CACHE STRING "Who answers for the packages, as in `Name <address>`; else DEBFULLNAME and DEBEMAIL")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${ASSAY_PACKAGE_MAINTAINER}")
if(NOT ASSAY_PACKAGE_MAINTAINER AND DEFINED ENV{DEBEMAIL})
  set(CPACK_DEBIAN_PACKAGE_MAINTAINER "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
elseif(NOT ASSAY_PACKAGE_MAINTAINER)
  set(CPACK_DEBIAN_PACKAGE_MAINTAINER "local build <root@localhost>")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME assay)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME assay)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64, ca-certificates")  # loaded when something is fetched
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "GGUF language models whose every number can be checked
assay runs language models from GGUF files: chat, single answers, batches,
a server with OpenAI's interface. Its results have the same bits for every
number of threads, batch size and instruction set, and it checks them from
the file to the drawn token.")

set(CPACK_DEBIAN_C_LIBRARY_PACKAGE_NAME libassay-c0)
set(CPACK_DEBIAN_C_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_C_LIBRARY_PACKAGE_MULTIARCH same)
set(CPACK_DEBIAN_C_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/triggers)
set(CPACK_COMPONENT_C_LIBRARY_DESCRIPTION "GGUF language models for programs in C - shared library
The C interface of assay: opaque handles, structs that can grow, no state
outside them. Results have the same bits for every number of threads, batch
size and instruction set.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libassay-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
string(CONCAT CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libboost-json${Boost_VERSION_MAJOR}.${Boost_VERSION_MINOR}-dev, libboost-container${Boost_VERSION_MAJOR}.${Boost_VERSION_MINOR}-dev, "
  "libfmt-dev, libpcre2-dev, libssl-dev, libutf8proc-dev, libxxhash-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "GGUF language models for programs in C and C++ - development files
Headers and the static library of assay's C++ interface, with a CMake package
and pkg-config files; headers of the C interface and the link to its shared
library.")
if(ASSAY_C)
  list(APPEND CPACK_COMPONENTS_ALL c_library)
  string(PREPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libassay-c0 (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), ")
endif()

set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_staging.cmake)
set(CPACK_ASSAY_SOURCE ${PROJECT_SOURCE_DIR})
include(CPack)
