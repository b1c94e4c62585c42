# Installing and packaging: what is made for it, where it goes.
.PHONY: install install-program install-library install-dev uninstall deb deb-check

VERSION   := $(shell sed -n 's/^.define SWITCHYARD_VERSION *"\(.*\)"/\1/p' runtime/client/switchyard.h)
SONAME    := libswitchyard.so.0
LIBDIR    ?= $(PREFIX)/lib
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR   ?= $(if $(filter /usr,$(PREFIX)),/lib/systemd/system,$(PREFIX)/lib/systemd/system)
SHARE     := build/share
MAN       := $(SHARE)/man/switchyard.1
COMPLETION := $(SHARE)/bash-completion/switchyard
CONF      := $(SHARE)/switchyard.conf
SUBSTITUTE = sed -e 's|@bindir@|$(PREFIX)/bin|' -e 's|@confdir@|$(SYSCONFDIR)/switchyard|' -e 's|@prefix@|$(PREFIX)|' -e 's|@libdir@|$(LIBDIR)|' -e 's|@version@|$(VERSION)|'

$(MAN): $(B)/switchyard runtime/install/help_pages.py
	$(call say,MAN,$(@D))
	$(Q)python3 runtime/install/help_pages.py man $(B)/switchyard $(@D)

$(COMPLETION): $(B)/switchyard runtime/install/help_pages.py
	$(call say,BASH,$@)
	$(Q)python3 runtime/install/help_pages.py completion $(B)/switchyard $@

# What the service needs, then every option with what it does, commented out.
$(CONF): $(B)/switchyard runtime/install/conf_head.toml
	$(call say,CONF,$@)
	@mkdir -p $(@D)
	$(Q){ cat runtime/install/conf_head.toml; echo; $(B)/switchyard serve --print-config; } > $@

install: install-program install-library install-dev ## Build: PREFIX=/usr/local DESTDIR= LIBDIR= SYSCONFDIR= UNITDIR=; a configuration that is there stays

# A configuration that is there stays as it is.
install-program: $(B)/switchyard $(MAN) $(COMPLETION) $(CONF) $(CUDA_BIN)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(SYSCONFDIR)/switchyard $(DESTDIR)$(UNITDIR)
	install -m 755 $(B)/switchyard $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(SHARE)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 $(COMPLETION) $(DESTDIR)$(PREFIX)/share/bash-completion/completions/
	[ -e $(DESTDIR)$(SYSCONFDIR)/switchyard/switchyard.conf ] || install -m 644 $(CONF) $(DESTDIR)$(SYSCONFDIR)/switchyard/
	for unit in service socket; do $(SUBSTITUTE) runtime/install/switchyard.$$unit > $(DESTDIR)$(UNITDIR)/switchyard.$$unit || exit 1; done
	chmod 644 $(DESTDIR)$(UNITDIR)/switchyard.service $(DESTDIR)$(UNITDIR)/switchyard.socket
	install -d $(DESTDIR)$(PREFIX)/share/switchyard/python/switchyard/_run
	install -m 644 runtime/python/switchyard/*.py $(DESTDIR)$(PREFIX)/share/switchyard/python/switchyard/
	install -m 644 runtime/python/switchyard/_run/sitecustomize.py workers/torch/torch_hook.cc workers/torch/torch_flight.hh workers/torch/torch_spill.hh workers/torch/script_page.h \
	    $(DESTDIR)$(PREFIX)/share/switchyard/python/switchyard/_run/
ifneq ($(MPI_BIN),)
	install -d $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(MPI_BIN) $(DESTDIR)$(PREFIX)/lib/
endif
ifneq ($(WITH_CUDA),)
	install -d $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(B)/libswitchyard-cuda.so $(B)/switchyard-cuda-keeper $(DESTDIR)$(PREFIX)/lib/
endif

install-library: $(B)/libswitchyard.so
	install -d $(DESTDIR)$(LIBDIR)
	install -m 644 $(B)/libswitchyard.so $(DESTDIR)$(LIBDIR)/$(SONAME)

install-dev:
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libswitchyard.so
	install -m 644 runtime/client/switchyard.h $(DESTDIR)$(PREFIX)/include/
	$(SUBSTITUTE) runtime/install/switchyard.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/switchyard.pc

uninstall: ## Build: removes what install put there; a changed configuration stays
	cd $(DESTDIR)$(PREFIX) && rm -f bin/switchyard share/man/man1/switchyard.1 share/man/man1/switchyard-*.1 share/bash-completion/completions/switchyard include/switchyard.h \
	    lib/libswitchyard-cuda.so lib/libswitchyard-mpi.so lib/switchyard-cuda-keeper && rm -rf share/switchyard
	rm -f $(DESTDIR)$(LIBDIR)/libswitchyard.so $(DESTDIR)$(LIBDIR)/$(SONAME) $(DESTDIR)$(LIBDIR)/pkgconfig/switchyard.pc $(DESTDIR)$(UNITDIR)/switchyard.service $(DESTDIR)$(UNITDIR)/switchyard.socket
	if cmp -s $(CONF) $(DESTDIR)$(SYSCONFDIR)/switchyard/switchyard.conf; then rm $(DESTDIR)$(SYSCONFDIR)/switchyard/switchyard.conf && rmdir $(DESTDIR)$(SYSCONFDIR)/switchyard; fi

deb: ## Build: Debian packages in build/deb, checked by lintian: switchyard, libswitchyard0, libswitchyard-dev
	@sh tests/install_deps.sh dpkg-dev lintian
	@$(MAKE) --no-print-directory CUDA=0 MPI=0 $(B)/switchyard $(B)/libswitchyard.so $(MAN) $(COMPLETION) $(CONF)
	$(Q)+bash runtime/install/make_deb.sh $(VERSION) build/deb

deb-check: deb ## Test: the packages in a fresh Debian: install, serve, stop, start, purge (root and a Debian mirror)
	@sh tests/install_deps.sh debootstrap
	$(Q)bash runtime/install/deb_check.sh build/deb
