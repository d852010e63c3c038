package fsm

// A semaphore's settings are its permits, level and metadata. Their version is 1
// when the semaphore is made and rises by one at each change of them, so that a
// client can change or delete just what it has read.

// settingsMoved counts a change of a semaphore's settings, from level 1 on.
func (m *Machine) settingsMoved(r ref) {
	if m.feature >= 1 {
		m.semaphores.mut(r).version++
	}
}

// versionIs reports whether a semaphore has the version expected, if one is.
func (m *Machine) versionIs(r ref, expected Change[uint64], result *Result) bool {
	s := m.semaphores.at(r)
	if expected.Given && expected.Value != s.version {
		result.Code, result.Subject, result.Version = VersionMismatch, s.name, s.version
		return false
	}
	return true
}

func needsVersion(expected Change[uint64]) uint32 {
	if expected.Given {
		return 1
	}
	return 0
}

func (e *encoder) settings(expected Change[uint64]) {
	if e.feature >= 1 {
		encodeChange(e, expected, (*encoder).uint)
	}
}

func (d *decoder) settings() (expected Change[uint64]) {
	if d.feature >= 1 {
		expected = decodeChange(d, (*decoder).uint)
	}
	return expected
}
