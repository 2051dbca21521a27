package booking.fares;

import java.util.function.LongUnaryOperator;
import org.springframework.asm.ClassWriter;
import org.springframework.asm.Label;
import org.springframework.asm.MethodVisitor;
import org.springframework.asm.Opcodes;

/**
 * The rules of each route's tariff, as a rule engine makes them: a class for each, with a branch for each kind of traveller. A sale
 * asks for one route after the other.
 */
public final class Tariffs {
    private static final int ROUTES = 60;
    /** The fastest route, the cheapest, and the one with the fewest changes. */
    private static final int ASKED = 3;
    /** Travellers and days that a search compares: it calls a route's rules more often than the JVM waits before it compiles. */
    private static final int COMPARED = 210;
    /** Kinds of traveller, with code of its own for each. */
    private static final int KINDS = 20;
    /** Operations of the code for one kind: a method stays below HugeMethodLimit, 8000 bytes (globals.hpp). */
    private static final int OPERATIONS = 10;

    private final LongUnaryOperator[] rules = new LongUnaryOperator[ROUTES];

    private static final class Loader extends ClassLoader {
        LongUnaryOperator define(String name, byte[] code) {
            Class<?> type = defineClass(name.replace('/', '.'), code, 0, code.length);
            try {
                return (LongUnaryOperator) type.getDeclaredConstructor().newInstance();
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException("the tariff " + name, e);
            }
        }
    }

    Tariffs() {
        Loader loader = new Loader();
        for (int i = 0; i < ROUTES; i++) {
            rules[i] = loader.define("booking/fares/Route" + i, rule("booking/fares/Route" + i, i));
        }
    }

    /** The least of what the rules of the next routes make of a search. */
    long best(long search) {
        long best = Long.MAX_VALUE;
        for (long route = search * ASKED; route < (search + 1) * ASKED; route++) {
            LongUnaryOperator rule = rules[(int) (route % ROUTES)];
            for (int i = 0; i < COMPARED; i++) {
                best = Math.min(best, rule.applyAsLong(search + i) & 0xFFFF);
            }
        }
        return best;
    }

    /** Searches after which each route has been asked for. */
    long round() {
        return ROUTES / ASKED + 1;
    }

    /** A class with the method applyAsLong(x): a switch over the kinds, each with operations on constants of its own. */
    private static byte[] rule(String name, int seed) {
        ClassWriter c = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        // Java 5, which needs no stack maps.
        String[] interfaces = {"java/util/function/LongUnaryOperator"};
        c.visit(Opcodes.V1_5, Opcodes.ACC_PUBLIC, name, null, "java/lang/Object", interfaces);
        constructor(c);
        MethodVisitor m = c.visitMethod(Opcodes.ACC_PUBLIC, "applyAsLong", "(J)J", null, null);
        m.visitCode();
        Label end = new Label();
        Label[] kinds = new Label[KINDS];
        java.util.Arrays.setAll(kinds, k -> new Label());
        m.visitVarInsn(Opcodes.LLOAD, 1);
        m.visitLdcInsn((long) KINDS);
        m.visitInsn(Opcodes.LREM);
        m.visitInsn(Opcodes.L2I);
        m.visitTableSwitchInsn(0, KINDS - 1, end, kinds);
        for (int k = 0; k < KINDS; k++) {
            m.visitLabel(kinds[k]);
            operations(m, seed * 31L + k * 7L);
            m.visitJumpInsn(Opcodes.GOTO, end);
        }
        m.visitLabel(end);
        m.visitVarInsn(Opcodes.LLOAD, 1);
        m.visitInsn(Opcodes.LRETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
        c.visitEnd();
        return c.toByteArray();
    }

    private static void constructor(ClassWriter c) {
        MethodVisitor m = c.visitMethod(Opcodes.ACC_PUBLIC, "<init>", "()V", null, null);
        m.visitCode();
        m.visitVarInsn(Opcodes.ALOAD, 0);
        m.visitMethodInsn(Opcodes.INVOKESPECIAL, "java/lang/Object", "<init>", "()V", false);
        m.visitInsn(Opcodes.RETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
    }

    private static void operations(MethodVisitor m, long constant) {
        for (int i = 0; i < OPERATIONS; i++) {
            m.visitVarInsn(Opcodes.LLOAD, 1);
            m.visitLdcInsn((constant + i) | 1);
            m.visitInsn(i % 3 == 0 ? Opcodes.LMUL : i % 3 == 1 ? Opcodes.LXOR : Opcodes.LADD);
            m.visitInsn(Opcodes.DUP2);
            m.visitIntInsn(Opcodes.BIPUSH, 7 + i);
            m.visitInsn(Opcodes.LUSHR);
            m.visitInsn(Opcodes.LXOR);
            m.visitVarInsn(Opcodes.LSTORE, 1);
        }
    }
}
