package ruby

// A coreKey tells methods of Ruby's own apart.
type coreKey struct{ name, class uint64 }

// coreMethod names a method of Ruby's own by the environment of its frame: Array#include?; "" if its name cannot be
// read. The entry of the method is two words before the environment (VM_ENV_DATA_INDEX_ME_CREF in vm_core.h). It has
// the name by which the method was called, and its class (rb_callable_method_entry_t in method.h).
func (p *Process) coreMethod(environment uint64) string {
	const entryAt, nameAt, classAt = 2 * word, 24, 32
	at, err := p.read.Word(environment - entryAt)
	if err != nil {
		return ""
	}
	var entry [classAt + word]byte
	if p.read(at, entry[:]) != nil || !isOwn(word64(entry[:], 0), ownMethod) {
		return ""
	}
	k := coreKey{word64(entry[:], nameAt), word64(entry[:], classAt)}
	if name, ok := p.cores[k]; ok {
		return name
	}
	name := p.nameOfID(k.name)
	if class := p.class(k.class); name != "" && class != "" {
		name = class + "#" + name
	}
	if len(p.cores) < maxKnown {
		p.cores[k] = name
	}
	return name
}

// The name of a method is a number (ID in symbol.h): an operator's as it is, any other with a kind in the lowest bits.
// Their texts are in arrays of 512 pairs, text and symbol (ID_ENTRY_UNIT in symbol.c).
const (
	lastOperator = 170 // tLAST_OP_ID in id.h
	kindBits     = 4   // ID_SCOPE_SHIFT
	perList      = 512
	perName      = 2
)

// nameOfID returns the text of a name, "" if it is not known.
func (p *Process) nameOfID(id uint64) string {
	if !p.sought {
		p.symbols, p.sought = p.findSymbols(), true
	}
	if p.symbols == 0 {
		return ""
	}
	number := id
	if id > lastOperator {
		number = id >> kindBits
	}
	name, err := p.nameAt(p.symbols, number)
	if err != nil {
		return ""
	}
	return name
}

// nameAt reads the text of a number from the array of all lists.
func (p *Process) nameAt(lists, number uint64) (string, error) {
	list, err := p.item(lists, number/perList)
	if err != nil {
		return "", err
	}
	at, err := p.item(list, number%perList*perName)
	if err != nil {
		return "", err
	}
	return p.text(at)
}

// item reads an item of an array.
func (p *Process) item(array, i uint64) (uint64, error) {
	items, n, err := p.array(array)
	if err != nil {
		return 0, err
	}
	if i >= n {
		return 0, ErrChanged
	}
	return p.read.Word(items + i*word)
}

// findSymbols looks for the array of all names in the data of Ruby's file. The array is behind the last number and an
// address, and has the name of the last number (rb_symbols_t in symbol.h, which has no symbol of its own in most
// builds).
func (p *Process) findSymbols() uint64 {
	for _, s := range p.data {
		text := make([]byte, s.size)
		if p.read(s.from, text) != nil {
			continue
		}
		for at := 0; at+3*word <= len(text); at += word {
			last, table, lists := word64(text, at), word64(text, at+word), word64(text, at+2*word)
			if last <= lastOperator || last > 1<<32 || table == 0 || table%word != 0 || lists == 0 || lists%word != 0 {
				continue
			}
			if name, err := p.nameAt(lists, last); err == nil && name != "" {
				return lists
			}
		}
	}
	return 0
}
